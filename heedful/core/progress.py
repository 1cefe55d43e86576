"""Progress bars and notes, on standard error, so that standard output holds only results."""

import os
import sys
from typing import Any

from rich.console import Console
from rich.progress import Progress


def progress_bar(*columns: Any) -> Progress:
    """Return a rich `Progress` context manager; it shows nothing if standard error is not a terminal.

    While it is open, rich shows printed text above the bar. Standard output is redirected to it only if it is a
    terminal too: a file or a pipe would get nothing.

    Args:
        columns: columns of the bar, by default those of rich.
    """
    console = Console(stderr=True)
    return Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal,
        redirect_stdout=sys.stdout.isatty(),
    )  # fmt: skip


def note(text: str) -> None:
    """Write a line to standard error at once; it is dropped if standard error is closed."""
    try:
        print(text, file=sys.stderr, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
