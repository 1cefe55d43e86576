"""Texts that have a name: what they are, and how they get into the cache folder."""

import datetime
import difflib
import functools
import json
import shutil
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from heedful.cache import cache_folder
from heedful.errors import InputError
from heedful.texts.download import download

DESCRIPTION = "text.json"  # in the folder of a prepared text


@dataclass(frozen=True, kw_only=True)
class NamedText:
    """An entry of the registry `registry.toml`."""

    name: str
    title: str
    layout: str
    """`pairs`, `labelled` or `documents`, see `Task.text_layout`."""
    url: str
    licence: str
    citation: str
    train: tuple[str, ...]
    valid: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    bytes: int | None = None
    """Size of the archive."""
    sha256: str | None = None
    """SHA-256 of the archive."""
    encoding: str = "utf-8"
    files: Mapping[str, str] = field(default_factory=dict)
    """Members of the archive by the names of the files they become; without an archive, empty."""

    @property
    def folder(self) -> Path:
        """The folder that the text is prepared in."""
        return cache_folder() / "texts" / self.name.replace(":", "-")

    @property
    def is_prepared(self) -> bool:
        """Whether the text has been downloaded and prepared."""
        return (self.folder / DESCRIPTION).is_file()

    def paths(self, part: str) -> tuple[str, ...]:
        """Return the files of a part, `train`, `valid` or `test`, as `corpus.resolve` understands them: NAME/FILE."""
        return tuple(f"{self.name}/{name}" for name in getattr(self, part))


@functools.cache
def registry() -> dict[str, NamedText]:
    """Return all named texts."""
    table = tomllib.loads(Path(__file__).with_name("registry.toml").read_text(encoding="utf-8"))
    found = {}
    for name, entry in table.items():
        fields: dict[str, Any] = entry | {key: tuple(entry[key]) for key in ("train", "valid", "test") if key in entry}
        found[name] = NamedText(name=name, **fields)
    return found


def find(name: str) -> NamedText:
    """Return the text of a name; raise `InputError`, which gives the nearest name, if there is none."""
    if name in registry():
        return registry()[name]
    near = difflib.get_close_matches(name, registry(), 1)
    advice = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(registry())}."
    raise InputError(f"There is no text named {name!r}; {advice}")


def located(path: Path) -> Path | None:
    """Return the file in the cache folder that NAME/FILE stands for; None if there is no text of that name."""
    name, *rest = path.parts or [""]
    return registry()[name].folder.joinpath(*rest) if rest and name in registry() else None


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
    archive = text.folder.parent / "downloads" / name
    found = download(text.url, archive, text.sha256, advance)
    try:
        with tarfile.open(archive) as opened:
            for member in opened.getmembers():
                if member.name.startswith("/") or ".." in PurePosixPath(member.name).parts:
                    raise InputError(f"{archive} has the path {member.name!r}, which leads out of its folder.")
            for own, member in text.files.items():
                content = opened.extractfile(member)
                if content is None:
                    raise InputError(f"{archive}: {member} is not a file.")
                _write(content.read(), made / own, text)
    except KeyError as error:
        raise InputError(f"{archive} lacks a file that {text.name} consists of: {error}.") from error
    except (tarfile.TarError, EOFError) as error:
        raise InputError(f"{archive} is not a whole archive: {error}.") from error
    archive.unlink()
    return {name: found}


def _from_files(text, made, advance):
    """Download the files of a text; return their SHA-256 by name."""
    hashes = {}
    for name in (*text.train, *text.valid, *text.test):
        partial = text.folder.parent / "downloads" / text.name.replace(":", "-") / name
        hashes[name] = download(text.url + name, partial, None, advance)
        _write(partial.read_bytes(), made / name, text)
        partial.unlink()
    return hashes


def _write(content, path, text):
    if text.encoding != "utf-8":
        content = content.decode(text.encoding).encode("utf-8")
    path.write_bytes(content)


def licence_of(corpus: str) -> str | None:
    """Return the licence of a named corpus, or None if the corpus has no name."""
    return registry()[corpus].licence if corpus in registry() else None
