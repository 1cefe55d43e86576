"""How a named text gets into the cache folder."""

import contextlib
import datetime
import json
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from heedful.errors import InputError
from heedful.texts.download import download
from heedful.texts.registry import DESCRIPTION, find


def get(
    name: str,
    report: Callable[[str], Any] = print,
    advance: Callable[[int, int | None], Any] = lambda done, size: None,
) -> Path:
    """Download a text, unless that has been done, and return its folder.

    Args:
        report: called with each line for the user, the licence first.
        advance: see `download`.

    Raises:
        InputError: the text has no such name, cannot be downloaded, or is not what the registry says.
    """
    text = find(name)
    if text.is_prepared:
        return text.folder
    report(f"{text.name}: {text.title}")
    report(f"licence: {text.licence}")
    report(f"citation: {text.citation}")
    text.folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=text.folder.parent, prefix=".preparing-") as temporary:
        made = Path(temporary) / "text"
        made.mkdir()
        hashes = _from_archive(text, made, advance) if text.files else _from_files(text, made, advance)
        if text.held_out:
            _hold_out(text, made)
        description = {
            "name": text.name, "licence": text.licence, "citation": text.citation, "url": text.url, "sha256": hashes,
            "date": datetime.date.today().isoformat(),
        }  # fmt: skip
        (made / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
        shutil.rmtree(text.folder, ignore_errors=True)
        made.rename(text.folder)
    return text.folder


def _from_archive(text, made, advance):
    """Download the archive of a text and write its `files`; return its SHA-256 by name."""
    name = PurePosixPath(text.url).name
    archive = text.folder.parent / "downloads" / text.folder.name / name
    found = download(text.url, archive, text.sha256, advance)
    try:
        with _opened(archive) as (members, read):
            for member in members:
                if member.startswith("/") or ".." in PurePosixPath(member).parts:
                    raise InputError(f"{archive} has the path {member!r}, which leads out of its folder.")
            for own, member in text.files.items():
                _write(read(member), made / own, text)
    except KeyError as error:
        raise InputError(f"{archive} lacks a file that {text.name} consists of: {error}.") from error
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise InputError(f"{archive} is not a whole archive: {error}.") from error
    archive.unlink()
    return {name: found}


@contextlib.contextmanager
def _opened(archive):
    """Open a .zip or .tar.* file; yield the names of its members, and a function that returns the bytes of one."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed:
            yield packed.namelist(), packed.read
        return
    with tarfile.open(archive) as tar:

        def read(name):
            file = tar.extractfile(name)
            if file is None:
                raise KeyError(f"{name} is not a file")
            return file.read()

        yield tar.getnames(), read


def _hold_out(text, made):
    """Move the last lines of the training text to the validation and test text."""
    for place, name in enumerate(text.train):
        lines = (made / name).read_bytes().split(b"\n")[:-1]
        amount = min(text.held_out, len(lines) // 10)
        cuts = {text.train: lines[: -2 * amount], text.valid: lines[-2 * amount : -amount], text.test: lines[-amount:]}
        for names, part in cuts.items():
            (made / names[place]).write_bytes(b"".join(line + b"\n" for line in part))


def _from_files(text, made, advance):
    """Download the files of a text; return their SHA-256 by name."""
    hashes = {}
    for name in (*text.train, *text.valid, *text.test):
        partial = text.folder.parent / "downloads" / text.folder.name / name
        hashes[name] = download(text.url + name, partial, None, advance)
        _write(partial.read_bytes(), made / name, text)
        partial.unlink()
    return hashes


def _write(content, path, text):
    if text.encoding != "utf-8":
        content = content.decode(text.encoding).encode("utf-8")
    path.write_bytes(content)
