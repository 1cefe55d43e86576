"""The cache of encoded text: folders with a manifest, so that what is damaged is found and made anew."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from heedful.core.errors import InputWarning
from heedful.core.storage import NOT_WRITABLE, file_hash, known_file_hash, write_text

FORMAT = "3"  # format of the folders; part of their names
MANIFEST = "manifest.json"
UNFINISHED = "unfinished-"  # prefix of folders that are being filled
ABANDONED_AFTER = 7 * 24 * 3600.0  # seconds after which such a folder is of a process that was killed
NO_FOLDER = (errno.ENOTDIR, errno.EEXIST)


def kept_in_cache(parts: Any, cache: Path | None, write: Callable[[Path], Any], read: Callable[..., Any]) -> Any:
    """Return what `read` loads from a folder that `write` has filled; reuse a cached folder that is intact.

    A damaged folder is reported in a warning and made anew. If the cache cannot be written, a warning says so, and
    nothing is kept.

    Args:
        parts: strings that determine the content.
        cache: the folder of all cached content; None keeps nothing.
        write: called with a new folder, to fill it.
        read: called with the folder and whether its arrays may be memory-mapped. It raises `ValueError` or `TypeError`
            if the content does not fit together.
    """
    if cache is None:
        return _not_kept(write, read)
    folder = Path(cache) / _name(parts)
    if os.path.lexists(folder):
        try:
            _require_intact(folder)
            return read(folder, mapped=True)
        except (ValueError, TypeError, EOFError, OSError) as error:
            warnings.warn(f"{folder} is damaged ({error}); the text is encoded again.", InputWarning, stacklevel=2)
    try:
        _fill(folder, write)
    except OSError as error:
        of_the_cache = error.filename is None or Path(error.filename).is_relative_to(folder.parent)
        if error.errno not in (*NOT_WRITABLE, *NO_FOLDER) or not of_the_cache:
            raise
        warnings.warn(
            f"encoded text is not kept: {error.strerror}: {error.filename or folder.parent}; HEEDFUL_CACHE may name "
            "another folder.", InputWarning, stacklevel=2,
        )  # fmt: skip
        return _not_kept(write, read)
    return read(folder, mapped=True)


def _name(parts):
    key = hashlib.sha256()
    for part in (FORMAT, *parts):
        key.update(hashlib.sha256(part.encode()).digest())
    return key.hexdigest()[:32]


def _not_kept(write, read):
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        return read(Path(folder), mapped=False)


def _fill(folder, write):
    """Write the content beside a folder, then put it in its place."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    for unfinished in folder.parent.glob(f"{UNFINISHED}*"):
        with contextlib.suppress(FileNotFoundError):  # another process removes it
            if time.time() - unfinished.stat().st_mtime > ABANDONED_AFTER:
                shutil.rmtree(unfinished, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=folder.parent) as temporary:
        new = Path(temporary) / "encoded"
        new.mkdir()
        write(new)
        content = {path.name: {"bytes": path.stat().st_size, "sha256": file_hash(path)} for path in new.iterdir()}
        write_text(new / MANIFEST, json.dumps({"entry": folder.name, "files": content}, indent=2) + "\n")
        while True:
            try:
                new.rename(folder)
                return
            except OSError:
                if not os.path.lexists(folder):
                    raise
            with contextlib.suppress(ValueError, OSError):  # otherwise it is removed
                _require_intact(folder)
                return  # another run has written the same content
            _remove(folder)


def _remove(folder):
    """Remove a damaged entry, which other runs may be removing too."""
    aside = folder.with_name(f"{folder.name}.{os.getpid()}.{time.monotonic_ns()}")
    with contextlib.suppress(FileNotFoundError):
        folder.rename(aside)
        if aside.is_dir() and not aside.is_symlink():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.unlink()


def _require_intact(folder):
    """Raise `ValueError` or `OSError` unless a folder holds exactly the files of its manifest, with their content."""
    if folder.is_symlink() or not folder.is_dir():
        raise ValueError("it is not a folder")
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        entry, files = manifest["entry"], {n: (file["bytes"], file["sha256"]) for n, file in manifest["files"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{MANIFEST} is not a manifest") from error
    if entry != folder.name:
        raise ValueError(f"{MANIFEST} belongs to another entry")
    if {path.name for path in folder.iterdir()} != {MANIFEST, *files}:
        raise ValueError("its files are not those of its manifest")
    for name, expected in files.items():
        path = folder / name
        if not path.is_file() or path.is_symlink():
            raise ValueError(f"{name} is not a plain file")
        if (path.lstat().st_size, known_file_hash(path)) != expected:
            raise ValueError(f"{name} does not fit its checksum")
