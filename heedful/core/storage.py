"""Atomic writes, locks, and safetensors files with checksums."""

import contextlib
import errno
import functools
import hashlib
import importlib
import json
import os
import shutil
import socket
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from safetensors.numpy import save as to_safetensors

from heedful.core.errors import InputError, InputWarning, library_errors_reported

CHECKSUM = "sha256"
NOT_WRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)  # codes of a full or forbidden disk
LOCKED_BYTE = 1 << 30  # where Windows locks a file of a lock
LOCK_SECONDS = 0.2  # between two attempts to lock it


def write_atomically(path: str | Path, content: bytes) -> None:
    """Write bytes to `path` so that a crash or a full disk leaves either the old file or the new one, complete.

    Raises:
        OSError: the disk is full or not writable; what was at `path` is untouched.
    """
    path = Path(path)
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(aside, "wb", opener=_open_no_link) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    if os.name != "posix":  # elsewhere folders cannot be opened
        return
    folder = os.open(path.parent, os.O_RDONLY)  # the rename must survive a power cut too
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_text(path: str | Path, text: str) -> None:
    """Write text in UTF-8 with `write_atomically`.

    File names that are not UTF-8 contain lone surrogates in Python. They are written as `\\udcff`, an escape that JSON
    reads back.
    """
    write_atomically(path, text.encode(errors="backslashreplace"))


@contextlib.contextmanager
def whole_folder(folder: str | Path) -> Iterator[Path]:
    """Yield an empty folder to write to. It replaces `folder` if the block succeeds; otherwise that stays as it was."""
    folder = Path(folder).resolve()  # "." has no name for a sibling folder
    new, old = (folder.with_name(f".{folder.name}.{ending}") for ending in ("new", "old"))
    if old.exists() and not folder.exists():  # the process was killed between the two moves
        old.rename(folder)
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        yield new
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            folder.rename(old)
        try:
            new.rename(folder)
        except OSError:
            if old.exists():
                old.rename(folder)
            raise
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def file_hash(path: str | Path) -> str:
    """Return the SHA-256 hash of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def known_file_hash(path: str | Path) -> str:
    """Return the SHA-256 hash of a file, computed once in a process unless its size, time or inode changes."""
    facts = os.stat(path)
    return _known_file_hash(os.path.abspath(path), facts.st_size, facts.st_mtime_ns, facts.st_ino)


@functools.lru_cache(maxsize=4096)
def _known_file_hash(path, size, modified, number):
    return file_hash(path)


def inside(folder: str | Path, name: str | Path) -> Path:
    """Return the path of `name` in a folder; raise `InputError` if a link leads out of the folder."""
    path = Path(folder) / name
    try:
        target = path.resolve()
        with contextlib.suppress(FileNotFoundError):
            path.stat()
    except (RuntimeError, OSError) as error:  # circular links: by `resolve` before Python 3.13, by `stat` since then
        raise InputError(f"{path} leads nowhere: {error}") from error
    if not target.is_relative_to(Path(folder).resolve()):
        raise InputError(f"{path} is a link to {target}, outside its folder: heedful does not follow such links.")
    return path


def plain_file(folder: str | Path, name: str | Path) -> Path:
    """Return the path of an existing plain file in a folder.

    Raises:
        InputError: it is missing, leads out of the folder, or is not a plain file (reading a pipe might never end).
    """
    path = inside(folder, name)
    if not path.exists():
        raise InputError(f"{path} does not exist.")
    if not path.is_file():
        raise InputError(f"{path} is not a plain file.")
    return path


def shapes(path: str | Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays in a safetensors file, by name, without reading the arrays.

    Raises:
        InputError: the file is missing or malformed, or its header does not match its size.
    """
    with _opened(path) as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


@contextlib.contextmanager
def warn_if_not_writable(what: str) -> Iterator[None]:
    """Warn with the text `what` instead of failing if nothing can be written, as in another user's run."""
    try:
        yield
    except OSError as error:
        if error.errno not in NOT_WRITABLE:
            raise
        warnings.warn(f"{what}: {error.strerror}: {error.filename}", InputWarning, stacklevel=3)


@contextlib.contextmanager
def locked(folder: str | Path, wait: bool = False) -> Iterator[None]:
    """Lock `folder` against other processes inside this context; a killed process leaves no lock.

    Args:
        folder: an existing folder.
        wait: whether to wait for another process instead of refusing.

    Raises:
        InputError: another process has locked the folder; the message names it.
    """
    with open(Path(folder) / ".lock", "a+", encoding="utf-8", opener=_open_no_link) as file:
        try:
            _lock(file, wait)
        except BlockingIOError as error:
            file.seek(0)
            raise InputError(f"{folder} is in use by {file.read() or 'another process'}.") from error
        for pattern in (".*.[0-9]*.part", "*/.*.[0-9]*.part"):  # left by a process that was killed while writing
            for part in Path(folder).glob(pattern):
                if part.is_file() and not part.parent.is_symlink():
                    part.unlink()
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


def _lock(file, wait):
    """Lock an open file; raise `BlockingIOError` if another process has done so."""
    try:
        import fcntl
    except ImportError:  # Windows
        _lock_byte(file, wait)
    else:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def _lock_byte(file, wait):
    """Lock an open file on Windows; raise as `_lock` does.

    On Windows other processes cannot read a locked byte. The locked byte lies beyond the end of the file, so that they
    can still read who holds the lock.
    """
    msvcrt: Any = importlib.import_module("msvcrt")
    while True:
        file.seek(LOCKED_BYTE)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            return
        except OSError as error:
            if not wait:
                raise BlockingIOError(*error.args) from error
        time.sleep(LOCK_SECONDS)


def _open_no_link(path, flags):
    """Open a file, but never through a link, which could overwrite a file elsewhere."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0), 0o666)


def with_checksum(arrays: Mapping[str, np.ndarray], metadata: dict[str, str]) -> bytes:
    """Return the bytes of a safetensors file with these arrays, metadata and a checksum of both."""
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}  # it scrambles other orders
    return to_safetensors(arrays, metadata | {CHECKSUM: checksum(arrays, metadata)})


def read_checked(path: str | Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read a file of `with_checksum`: (arrays by name, metadata).

    Raises:
        InputError: the file is missing, or any bit of its content has changed.
    """
    arrays, metadata, _ = read_with_checksum(path)
    return arrays, metadata


def read_with_checksum(path: str | Path) -> tuple[dict[str, np.ndarray], dict[str, str], str]:
    """Read a file of `with_checksum`: (arrays by name, metadata, checksum); errors as in `read_checked`."""
    arrays, metadata = read_arrays(path)
    seal = _checksum_of(metadata, path)
    del metadata[CHECKSUM]
    if seal != checksum(arrays, metadata):
        raise InputError(f"{path} is damaged: its content does not fit its checksum.")
    return arrays, metadata, seal


def read_checksum(path: str | Path) -> str:
    """Return the checksum stored in a file of `with_checksum`; it does not depend on the order in the file.

    Raises:
        InputError: the file is missing or malformed, or has no checksum.
    """
    with _opened(path) as file:
        return _checksum_of(file.metadata() or {}, path)


def _checksum_of(metadata, path):
    if CHECKSUM not in metadata:
        raise InputError(f"{path} is damaged, or was not written by this version of heedful: it carries no checksum.")
    return metadata[CHECKSUM]


def read_arrays(path: str | Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read a safetensors file: (arrays by name, metadata).

    Raises:
        InputError: the file is missing, truncated or malformed.
    """
    with _opened(path) as file, library_errors_reported(f"{path} is damaged"):
        try:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
        except (TypeError, AttributeError, ValueError) as error:  # a type that NumPy lacks, an impossible shape
            raise InputError(f"{path} has an array that NumPy cannot hold: {error}.") from error


@contextlib.contextmanager
def _opened(path):
    try:
        with safetensors.safe_open(str(path), framework="numpy") as file:
            yield file
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist.") from error
    except safetensors.SafetensorError as error:
        raise InputError(f"{path} is damaged: {error}.") from error


def checksum(arrays: Mapping[str, np.ndarray], metadata: dict[str, str]) -> str:
    """Return a SHA-256 over the metadata and over name, dtype, shape and content of each array."""
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(json.dumps([name, array.dtype.str, np.shape(arrays[name])]).encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def name_in_model(variable: Any) -> str:
    """Return the path of a Keras variable inside its model, the name under which its value is saved."""
    return variable.path.split("/", 1)[1]
