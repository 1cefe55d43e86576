"""How work goes, on standard error, which leaves standard output to whoever reads it: a progress bar, and notes."""

import os
import sys

from rich.console import Console
from rich.progress import Progress


def progress_bar(*columns):
    """Return a rich `Progress`, to be opened with `with`; it shows nothing where standard error is no terminal.

    While it is open, rich redirects printed text and shows it above the bar. That is for what goes to a terminal
    too: a file or a pipe would get nothing.

    Args:
        columns: of the bar; rich's usual ones by default.
    """
    console = Console(stderr=True)
    return Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal,
        redirect_stdout=sys.stdout.isatty(),
    )  # fmt: skip


def note(text):
    """Write a line to standard error at once; it is dropped if standard error is closed."""
    try:
        print(text, file=sys.stderr, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
