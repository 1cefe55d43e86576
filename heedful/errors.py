"""What the command line prints as a single line: errors that are the user's to mend, and warnings."""


class InputError(ValueError):
    """Bad input: a file, a setting or a run folder that cannot be used. The message says which, why and what to do.

    The command line exits with 2.
    """


class InputWarning(UserWarning):
    """Something was left out that the user may have wanted; the work goes on."""
