"""How a named text gets into the cache folder."""

import contextlib
import dataclasses
import datetime
import json
import shutil
import tarfile
import tempfile
import urllib.parse
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from heedful.config.named_texts import DESCRIPTION, TEST_SET, UNKNOWN, find
from heedful.core.errors import InputError
from heedful.core.storage import file_hash, write_atomically
from heedful.data.texts.download import download
from heedful.data.texts.huggingface import describe
from heedful.data.texts.parquet import write_text
from heedful.data.texts.test_sets import write_test_set


def get(
    name: str,
    report: Callable[[str], Any] = print,
    advance: Callable[[int, int | None], Any] = lambda done, size: None,
    accept_licence: bool = False,
) -> Path:
    """Download a text, unless that has been done, and return its folder.

    Args:
        report: called with each line for the user, the licence first.
        advance: see `download`.
        accept_licence: consent to a licence that forbids use without it.

    Raises:
        InputError: the text has no such name, cannot be downloaded, or is not what the registry says; or its licence
            asks for consent.
    """
    text = find(name)
    if text.is_prepared:
        return text.folder
    text.folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=text.folder.parent, prefix=".preparing-") as temporary:
        if text.layout == UNKNOWN:
            text = _asked(text, Path(temporary))
        report(f"{text.name}: {text.title}")
        report(f"licence: {text.licence}")
        report(f"citation: {text.citation}")
        if text.consent and not accept_licence:
            raise InputError(
                f"{text.name} may be used only by those who accept its terms, see {text.url}: add --accept-licence."
            )
        prepared = Path(temporary) / "text"
        prepared.mkdir()
        facts = {"name": text.name, "licence": text.licence, "citation": text.citation, "url": text.url}
        facts |= _write_files(text, prepared, advance) | {"date": datetime.date.today().isoformat()}
        (prepared / DESCRIPTION).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        shutil.rmtree(text.folder, ignore_errors=True)
        prepared.rename(text.folder)
    return text.folder


def _asked(text, scratch):
    """Return a data set of the hub with what the hub says of it."""
    facts = describe(text.name, scratch)
    parquet = {part: tuple(files) for part, files in facts["parquet"].items()}
    return dataclasses.replace(text, licence=facts["licence"], consent=facts["gated"], parquet=parquet)


def _write_files(text, prepared, advance):
    """Write the files of a text; return its layout, the names of its files by part, and the SHA-256 of its sources."""
    parts: dict[str, Any] = {"layout": text.layout, "train": text.train, "valid": text.valid, "test": text.test}
    if text.parquet:
        hashes = _from_parquet(text, prepared, parts, advance)
    elif TEST_SET.fullmatch(text.name):
        write_test_set(text.name, prepared)
        hashes = {name: file_hash(prepared / name) for name in text.test}
    else:
        hashes = _from_archive(text, prepared, advance) if text.files else _from_files(text, prepared, advance)
    if text.held_out:
        _hold_out(text, prepared)
    return parts | {"sha256": hashes}


def _from_parquet(text, prepared, parts, advance):
    """Download Parquet files and write their rows; put layout and names of files into `parts`; return the SHA-256."""
    hashes = {}
    for part, addresses in text.parquet.items():
        tables = []
        for number, address in enumerate(addresses):
            url = urllib.parse.urljoin(text.url, address)
            tables.append(_downloads(text) / f"{part}-{number}.parquet")
            hashes[url] = _checked(url, tables[-1], None, advance)
        if tables:
            parts["layout"], parts[part] = write_text(tables, prepared, part)
        for table in tables:
            table.unlink()
    return hashes


def _downloads(text):
    return text.folder.parent / "downloads" / text.folder.name


def _checked(url, path, sha256, advance):
    """Download a file; return its SHA-256, which must be the published one, or that of its first download."""
    record = path.parents[1] / "sha256.json"
    known = json.loads(record.read_text(encoding="utf-8")) if record.is_file() else {}
    checksum = download(url, path, sha256 or known.get(url), advance)
    if known.get(url) != checksum:
        write_atomically(record, json.dumps(known | {url: checksum}, indent=2).encode())
    return checksum


def _from_archive(text, prepared, advance):
    """Download the archive of a text and write its `files`; return its SHA-256 by name."""
    name = PurePosixPath(text.url).name
    archive = _downloads(text) / name
    checksum = _checked(text.url, archive, text.sha256, advance)
    try:
        with _opened(archive) as (members, read):
            for member in members:
                if member.startswith("/") or ".." in PurePosixPath(member).parts:
                    raise InputError(f"{archive} has the path {member!r}, which leads out of its folder.")
            for own, member in text.files.items():
                _write(read(member), prepared / own, text)
    except KeyError as error:
        raise InputError(f"{archive} lacks a file that {text.name} consists of: {error}.") from error
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise InputError(f"{archive} is not a whole archive: {error}.") from error
    archive.unlink()
    return {name: checksum}


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


def _hold_out(text, prepared):
    """Move the last lines of the training text to the validation and test text."""
    for column, name in enumerate(text.train):
        lines = (prepared / name).read_bytes().removesuffix(b"\n").split(b"\n")
        if len(lines) < 3:
            raise InputError(f"{text.name} has fewer than three lines: too few to train, validate and test on.")
        amount = max(1, min(text.held_out, len(lines) // 10))
        cuts = {text.train: lines[: -2 * amount], text.valid: lines[-2 * amount : -amount], text.test: lines[-amount:]}
        for names, part in cuts.items():
            (prepared / names[column]).write_bytes(b"".join(line + b"\n" for line in part))


def _from_files(text, prepared, advance):
    """Download the files of a text; return their SHA-256 by name."""
    hashes = {}
    for name in (*text.train, *text.valid, *text.test):
        partial = _downloads(text) / name
        hashes[name] = _checked(text.url + name, partial, None, advance)
        _write(partial.read_bytes(), prepared / name, text)
        partial.unlink()
    return hashes


def _write(content, path, text):
    if text.columns:
        content = _chosen_columns(content.decode(text.encoding), text)
    elif text.encoding != "utf-8":
        content = content.decode(text.encoding).encode("utf-8")
    path.write_bytes(content)


def _chosen_columns(table, text):
    """Return the chosen columns of a table with tabs and a header, without the header."""
    header, *rows = (line.split("\t") for line in table.splitlines())
    if missing := [name for name in text.columns if name not in header]:
        raise InputError(f"A table of {text.name} has no column {missing[0]!r}; its columns are {', '.join(header)}.")
    columns = [header.index(name) for name in text.columns]
    return "".join("\t".join(row[column].strip() for column in columns) + "\n" for row in rows).encode()
