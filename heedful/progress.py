"""A progress bar on standard error, which leaves standard output to whoever reads it."""

import sys

from rich.console import Console
from rich.progress import Progress


def progress_bar(*columns):
    """Return a rich `Progress`, to be opened with `with`; it shows nothing where standard error is no terminal.

    While it is open rich takes over what is printed, and shows it above the bar. That is for what goes to a terminal
    too: a file or a pipe would get nothing.

    Args:
        columns: of the bar; rich's usual ones by default.
    """
    console = Console(stderr=True)
    return Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal,
        redirect_stdout=sys.stdout.isatty(),
    )  # fmt: skip
