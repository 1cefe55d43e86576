"""Lines in and lines out: files or standard input, standard output, warnings."""

import os
import stat
import sys

from heedful.arriving import Arriving
from heedful.data.corpus import read_lines, resolve, without_ends
from heedful.errors import InputError
from heedful.progress import note


def read(files):
    """Return an iterator of the lines of files, or of standard input if there are none.

    Relative paths are looked up here and in HEEDFUL_DATA.

    Raises:
        InputError: a file is missing; while reading, text is not UTF-8.
    """
    found = [resolve(file) for file in files]
    for file, path in zip(files, found, strict=True):
        if not path.exists():
            raise InputError(f"{file} does not exist.")
    return (line for path in found for line in read_lines(path)) if files else _standard_input()


def _standard_input():
    if sys.stdin is None:
        raise InputError("There is no standard input to read.")
    try:
        # A file object of its own: a thread that waits in the usual one would crash the end of the process.
        file = open(sys.stdin.fileno(), "rb", closefd=False)  # noqa: SIM115 - open as long as the process is
    except OSError:
        return _decoded(sys.stdin.buffer)  # something that only looks like standard input
    at_once = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    return _decoded(file) if at_once else Arriving(_decoded(file))


def _decoded(file):
    for number, raw in enumerate(without_ends(file), start=1):
        try:
            yield raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"standard input is not UTF-8: line {number}, byte {error.start}.") from error


def one_line(text):
    """Return a text without line feeds: what is written may contain what some programs take for the end of a line."""
    return " ".join(text.split("\n"))


def say(text):
    """Tell the user, on standard output, at once."""
    print(text, flush=True)


def tell(text):
    """Report progress to the user, as `say`; if standard output is closed, the work continues."""
    try:
        say(text)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        warn("nobody reads standard output any more; the work goes on.")


def note_idle_devices():
    """Tell the user, on standard error, of devices that are not used."""
    from heedful import backend  # here, since it loads Keras, and some verbs do without

    if backend.device_count() > 1:
        note(f"heedful: {backend.device_summary()}")


def warn(text):
    """Warn the user, on standard error."""
    note(f"heedful: warning: {text}")
