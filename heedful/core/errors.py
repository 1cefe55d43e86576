"""Errors and warnings that the command line prints as a single line."""

import contextlib
from collections.abc import Iterator


class InputError(ValueError):
    """A file, setting or run folder that cannot be used. The message says which one, why, and what to do.

    The command line then exits with code 2.
    """


class InputWarning(UserWarning):
    """Something that the user may not expect, such as omitted output; the work continues."""


LOST_PROCESS = 75  # exit code of a process that cannot train on, since another one is gone or hangs


@contextlib.contextmanager
def library_errors_reported(what: str) -> Iterator[None]:
    """Raise `InputError` if a library written in Rust panics, or raises a plain `Exception`.

    A panic raises `PanicException`, which does not derive from `Exception`, so handlers that keep a thread alive would
    miss it. Each library defines its own, and none exports it.
    """
    try:
        yield
    except BaseException as error:
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        raise InputError(f"{what}: {error}.") from error


@contextlib.contextmanager
def extra_needed(extra: str, what: str) -> Iterator[None]:
    """Raise `InputError` if a library cannot be imported in this context.

    Args:
        extra: the extra of heedful that installs it.
        what: what needs it, as the beginning of the message.
    """
    try:
        yield
    except ImportError as error:
        raise InputError(f"{what}: pip install 'heedful[{extra}]'.") from error


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "line"), counted(2000, "line")
    ('1 line', '2,000 lines')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"
