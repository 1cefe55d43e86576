"""Text from files and standard input; messages on standard output and standard error."""

import contextlib
import os
import signal
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from heedful.core import progress
from heedful.core.errors import InputError, counted
from heedful.core.line_stream import LineStream
from heedful.core.output import is_replaceable
from heedful.core.progress import note
from heedful.core.stop_signals import ending_signals
from heedful.data.corpus import resolve
from heedful.data.text_files import decoded, read_lines, without_ends

STANDARD_INPUT = "standard input"


def read(files: Sequence[Path]) -> Iterator[str]:
    """Return an iterator of the lines of files, or of standard input if there are none.

    Relative paths are looked up in the working directory and in HEEDFUL_DATA.

    Raises:
        InputError: a file is missing or, while reading, is not UTF-8.
    """
    paths = [resolve(file) for file in files]
    for file, path in zip(files, paths, strict=True):
        if not path.exists():
            raise InputError(f"{file} does not exist.")
    return (line for path in paths for line in read_lines(path)) if files else _standard_input()


def _standard_input():
    if sys.stdin is None:
        raise InputError("There is no standard input to read.")
    try:
        # A separate file object: a thread that is blocked in sys.stdin crashes Python when the process ends.
        file = open(sys.stdin.fileno(), "rb", closefd=False)  # noqa: SIM115 - open until the process ends
    except OSError:
        return _lines(sys.stdin.buffer)  # a replacement without a file descriptor
    at_once = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    return _lines(file) if at_once else LineStream(_lines(file))


def _lines(file):
    return decoded(without_ends(file, STANDARD_INPUT), STANDARD_INPUT)


def print_line(text: str) -> None:
    """Print a text on standard output, and flush it."""
    print(text, flush=True)


def report_progress(text: str) -> None:
    """Report progress on standard output, unless quiet; if that is closed, the work continues."""
    if progress.is_quiet():
        return
    with progress.dropped_if_closed(sys.stdout, "heedful: warning: standard output is closed; the work continues."):
        print_line(text)


def report_written(path: Path, text: str) -> None:
    """Report what was written to a file; on standard error if the file is a pipe or a device, perhaps this output."""
    (report_progress if is_replaceable(path) else note)(text)


def note_idle_devices() -> None:
    """Report unused devices on standard error."""
    from heedful import backend  # imported here because it loads Keras, which some commands do not need

    if backend.device_count() > backend.inference_devices():
        note(f"heedful: {backend.device_summary(1)}")


def warn(text: str) -> None:
    """Warn the user, on standard error."""
    progress.warn(f"heedful: warning: {text}")


def warn_of_cut_lines(count: int) -> None:
    """Warn that the model has read only the beginning of `count` lines."""
    if count:
        warn(f"{counted(count, 'line')} with more tokens than the model reads: only the beginning was read.")


@contextlib.contextmanager
def termination_interrupts() -> Iterator[list[int]]:
    """Treat SIGTERM, and the end of the terminal, like Ctrl-C in this context; yields a list of the signals that came.

    What is ignored, as with `nohup`, stays so.
    """
    received: list[int] = []

    def leave(number, frame):
        received.append(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, leave) for number in ending_signals()}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
