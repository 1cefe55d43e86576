"""Progress bars and notes, on standard error, so that standard output holds only results."""

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from rich.progress import Progress

Report = Callable[[str], Any]  # is given lines about the progress of long work
_quiet = False  # whether progress and notes are left out


@contextlib.contextmanager
def quietly(quiet: bool = True) -> Iterator[None]:
    """Leave out progress and notes in this context, in all threads."""
    global _quiet
    before, _quiet = _quiet, quiet
    try:
        yield
    finally:
        _quiet = before


def is_quiet() -> bool:
    """Return whether progress and notes are left out."""
    return _quiet


def progress_bar(*columns: Any) -> "Progress":
    """Return a rich `Progress` context manager, for a terminal or, with ipywidgets, a notebook; else it shows nothing.

    While it is open, rich shows printed text above the bar. Standard output is redirected to it only if it is a
    terminal too: a file or a pipe would get nothing.

    Args:
        columns: columns of the bar, by default those of rich.
    """
    from rich.console import Console  # not needed by a command that translates one line
    from rich.progress import Progress

    console = Console(file=cast(IO[str], _Lasting(sys.stderr)))
    shown = console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)
    console.quiet = _quiet or not shown  # rich before version 15 ends a disabled bar with an empty line
    return Progress(
        *columns, console=console, transient=True, disable=console.quiet,
        redirect_stdout=sys.stdout.isatty(),
    )  # fmt: skip


def note(text: str) -> None:
    """Write a line to standard error, unless quiet."""
    if not _quiet:
        warn(text)


def warn(text: str) -> None:
    """Write a line to standard error at once, also if quiet; it is dropped if standard error is closed."""
    with dropped_if_closed(sys.stderr):
        print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def dropped_if_closed(stream: TextIO, warning: str = "") -> Iterator[None]:
    """Drop what is written to `stream`, in this context and later, if its pipe or terminal turns out to be closed.

    Args:
        stream: standard output or standard error.
        warning: written to standard error in this case.
    """
    try:
        yield
    except OSError as error:
        # A closed terminal is no terminal any more, but still a device; a file has this error if its disk fails.
        terminal_closed = error.errno == errno.EIO and stat.S_ISCHR(os.fstat(stream.fileno()).st_mode)
        if error.errno != errno.EPIPE and not terminal_closed:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if warning:
            warn(warning)


class _Lasting:
    """A stream that drops what is written to it once its terminal is closed, so that a training continues."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with dropped_if_closed(self._stream):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with dropped_if_closed(self._stream):
            self._stream.flush()
