"""Progress bars and notes, on standard error, so that standard output holds only results."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

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

    console = Console(stderr=True)
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
    try:
        print(text, file=sys.stderr, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
