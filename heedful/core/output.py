"""Files that the user names for results: replaced as a whole, or written to, if they are pipes or devices."""

import contextlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from heedful.core.errors import InputError

MAX_LINKS = 40  # as in Linux
_DESCRIPTOR = re.compile(r"/(?:dev|proc/self|proc/\d+)/(?:fd/(\d+)|(stdin|stdout|stderr))")


@contextlib.contextmanager
def output_file(path: str | Path) -> Iterator[Path]:
    """Yield the path of a temporary file; without an error, its content becomes that of `path`, which the user named.

    A file is replaced as a whole and keeps its permissions; of a link, the target is. A pipe or a device, such as
    /dev/stdout, receives the content.

    Raises:
        InputError: `path` is a folder.
        OSError: it cannot be written; what was there is untouched.
    """
    target = Path(path)
    require_no_folder(target)
    if not is_replaceable(target):
        with tempfile.TemporaryDirectory() as folder:
            aside = Path(folder) / (target.name or "output")
            yield aside
            number = _descriptor(target)
            with open(target if number is None else os.dup(number), "wb") as file, open(aside, "rb") as content:
                shutil.copyfileobj(content, file)
        return
    target = target.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        aside.unlink(missing_ok=True)
        yield aside
        with open(aside, "rb") as file:
            os.fsync(file.fileno())
        if target.exists():
            aside.chmod(stat.S_IMODE(target.stat().st_mode))
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)


def is_replaceable(path: str | Path) -> bool:
    """Return whether a path names a regular file, or a new one: no pipe, no device, nothing that is open already."""
    return _descriptor(path) is None and (not os.path.exists(path) or os.path.isfile(path))


def require_no_folder(path: str | Path) -> None:
    """Raise `InputError` if a path that names an output file is a folder."""
    if os.path.isdir(path) or str(path).endswith(os.sep):
        raise InputError(f"{path} is a folder: name a file.")


def _descriptor(path):
    """Return the file descriptor that a path such as /dev/stdout names, directly or by links, or None.

    Opening such a path would truncate the file to which standard output is redirected.
    """
    path = os.path.abspath(path)
    for _ in range(MAX_LINKS):
        if match := _DESCRIPTOR.fullmatch(path):
            return int(match[1] or ("stdin", "stdout", "stderr").index(match[2]))
        if not os.path.islink(path):
            return None
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    return None


def write_output(path: str | Path, content: bytes) -> None:
    """Write bytes to a file that the user named, as `output_file` does."""
    with output_file(path) as aside:
        aside.write_bytes(content)
