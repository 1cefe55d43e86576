"""What the command line prints as a single line: errors that are the user's to mend, and warnings."""


class InputError(ValueError):
    """Bad input: a file, a setting or a run folder that cannot be used. The message says which, why and what to do.

    The command line exits with 2.
    """


class InputWarning(UserWarning):
    """Something that the user may not expect, such as output that was left out; the work continues."""
