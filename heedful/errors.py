"""The one kind of error that is the user's to mend: the command line prints it as a single line and exits with 2."""


class InputError(ValueError):
    """Bad input: a file, a setting or a run folder that cannot be used. The message says which, why and what to do."""
