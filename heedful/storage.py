"""Files that are whole or absent, and arrays that are what was written or not loaded at all."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import socket
import warnings
from pathlib import Path

import numpy as np
import safetensors
from safetensors.numpy import save as to_safetensors

from heedful.errors import InputError, InputWarning

SEAL = "sha256"


def write_atomically(path, content):
    """Write bytes to `path` so that a crash or a full disk leaves the old file or the new one, never a part.

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
    folder = os.open(path.parent, os.O_RDONLY)  # the new name must survive a power cut too
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_text(path, text):
    """Write text as `write_atomically` does its bytes, in UTF-8.

    A file's name may be other bytes, which Python reads as lone surrogates: they are written as `\\udcff`, which JSON
    takes for what they were.
    """
    write_atomically(path, text.encode(errors="backslashreplace"))


def inside(folder, name):
    """Return the path of what a folder holds or is to hold; `InputError` if a link there leads out of the folder."""
    path = Path(folder) / name
    try:
        target = path.resolve()
    except RuntimeError as error:  # links that lead to each other, before Python 3.13
        raise InputError(f"{path} leads nowhere: {error}") from error
    if not target.is_relative_to(Path(folder).resolve()):
        raise InputError(f"{path} leads out of its folder, to {target}: what others wrote must stay inside.")
    return path


def own_file(folder, name):
    """Return the path of a file of a folder, if it is a file and lies there.

    Raises:
        InputError: it is missing, leads out of the folder, or is no plain file, such as a pipe that never ends.
    """
    path = inside(folder, name)
    if not path.exists():
        raise InputError(f"{path} does not exist.")
    if not path.is_file():
        raise InputError(f"{path} is not a plain file.")
    return path


def shapes(path):
    """Return the shapes of the arrays in a safetensors file, by name, without reading them.

    Raises:
        InputError: the file is missing or malformed; its header and its size do not fit each other.
    """
    with _opened(path) as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


@contextlib.contextmanager
def if_allowed(what):
    """Warn that `what` is left out, instead of failing, where writing is not allowed: scores in another user's run."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        warnings.warn(f"{what}: {error.strerror}: {error.filename}", InputWarning, stacklevel=3)


@contextlib.contextmanager
def locked(folder, wait=False):
    """Keep other processes out of `folder` while this one works in it; one that is killed leaves no lock.

    Args:
        folder: must exist.
        wait: until another process has left, instead of refusing.

    Raises:
        InputError: another process is at work there; says which.
    """
    with open(Path(folder) / ".lock", "a+", encoding="utf-8", opener=_open_no_link) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            file.seek(0)
            raise InputError(f"{folder} is in use by {file.read() or 'another process'}.") from error
        for pattern in (".*.[0-9]*.part", "*/.*.[0-9]*.part"):  # left by one that was killed while it wrote
            for part in Path(folder).glob(pattern):
                if not part.parent.is_symlink():
                    part.unlink()
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


def _open_no_link(path, flags):
    """Open a file that is not a link: what a stranger's one leads to would be written over."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def sealed(arrays, metadata):
    """Return arrays by name and metadata as the bytes of a safetensors file that carries its own checksum."""
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}  # others it would write scrambled
    return to_safetensors(arrays, metadata | {SEAL: checksum(arrays, metadata)})


def read_sealed(path):
    """Read what `sealed` made: (arrays by name, metadata).

    Raises:
        InputError: the file is missing, or a single bit of it is not as it was written.
    """
    arrays, metadata, _ = read_with_seal(path)
    return arrays, metadata


def read_with_seal(path):
    """Read what `sealed` made: (arrays by name, metadata, checksum of both); errors as of `read_sealed`."""
    arrays, metadata = read_arrays(path)
    seal = _seal_of(metadata, path)
    del metadata[SEAL]
    if seal != checksum(arrays, metadata):
        raise InputError(f"{path} is damaged: its content does not fit its checksum.")
    return arrays, metadata, seal


def read_seal(path):
    """Return the checksum that a file of `sealed` carries: that of its content, whatever the order in the file.

    Raises:
        InputError: the file is missing, malformed, or carries none.
    """
    with _opened(path) as file:
        return _seal_of(file.metadata() or {}, path)


def _seal_of(metadata, path):
    if SEAL not in metadata:
        raise InputError(f"{path} is damaged, or was not written by this version of heedful: it carries no checksum.")
    return metadata[SEAL]


def read_arrays(path):
    """Read a safetensors file: (arrays by name, metadata).

    Raises:
        InputError: the file is missing, truncated or malformed.
    """
    with _opened(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118


@contextlib.contextmanager
def _opened(path):
    try:
        with safetensors.safe_open(str(path), framework="numpy") as file:
            yield file
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist.") from error
    except safetensors.SafetensorError as error:
        raise InputError(f"{path} is damaged: {error}.") from error


def checksum(arrays, metadata):
    """Return the SHA-256 of all metadata and, by name, of type, shape and content of all arrays."""
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(json.dumps([name, array.dtype.str, np.shape(arrays[name])]).encode())
        digest.update(array.reshape(-1).view(np.uint8))
    return digest.hexdigest()


def name_in_model(variable):
    """Return the path of a Keras variable inside its model, which is the name under which a weight is saved."""
    return variable.path.split("/", 1)[1]
