"""Errors and warnings that the command line prints as a single line."""


class InputError(ValueError):
    """A file, setting or run folder that cannot be used. The message says which one, why, and what to do.

    The command line exits with 2.
    """


class InputWarning(UserWarning):
    """Something that the user may not expect, such as omitted output; the work continues."""


LOST = 75  # exit code of a process whose training cannot go on because another process is gone or stuck
