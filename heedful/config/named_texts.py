"""Texts that have a name: those of `named_texts.toml`, the corpora of OPUS, data sets of the hub, and test sets."""

import dataclasses
import difflib
import functools
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heedful.core.cache import cache_folder
from heedful.core.errors import InputError

UNKNOWN = "unknown"  # the layout of a data set of the hub before its download
DESCRIPTION = "text.json"  # in the folder of a prepared text
LISTS = ("train", "valid", "test", "columns")
TEST_SET = re.compile(r"sacrebleu:([\w./-]+)/([a-z]{2,3}(?:_[A-Z]+)?)-([a-z]{2,3}(?:_[A-Z]+)?)")
HUB = re.compile(r"hf:([\w.-]+/[\w.-]+)@(refs/[\w.-]+/[\w.-]+|[\w.-]+)(?:/([\w.-]+))?")
HUB_ADDRESS = "https://huggingface.co"
OPUS = re.compile(r"opus:([\w.-]+)/(v[\w.-]+)/([a-z]{2,3}(?:_[A-Z]+)?)-([a-z]{2,3}(?:_[A-Z]+)?)")


@dataclass(frozen=True, kw_only=True)
class NamedText:
    """An entry of the registry `named_texts.toml`."""

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
    held_out: int = 0
    """Lines for validation, and as many for testing, which are taken from the end of a text without such parts."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Members of the archive by the names of the files they become; without an archive, empty."""
    columns: tuple[str, ...] = ()
    """Columns of the members, which are tables with a header, in the order in which they become a line."""
    parquet: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Addresses of Parquet files by part; the layout of a data set of the hub is known once it is downloaded."""
    consent: bool = False
    """Whether the licence must be accepted before the download."""

    @property
    def folder(self) -> Path:
        """The folder that the text is prepared in."""
        return cache_folder() / "texts" / re.sub(r"[:/]", "-", self.name)

    @property
    def is_prepared(self) -> bool:
        """Whether the text has been downloaded and prepared."""
        return (self.folder / DESCRIPTION).is_file()

    def paths(self, part: str) -> tuple[str, ...]:
        """Return the files of a part, `train`, `valid` or `test`, as `corpus.resolve` understands them: NAME/FILE.

        Raises:
            InputError: they are not known before the download.
        """
        if self.layout == UNKNOWN:
            raise InputError(f"{self.name} is not downloaded yet: heedful data get {self.name}")
        return tuple(f"{self.name}/{name}" for name in getattr(self, part))


@functools.cache
def registry() -> dict[str, NamedText]:
    """Return all named texts."""
    table = tomllib.loads(Path(__file__).with_name("named_texts.toml").read_text(encoding="utf-8"))
    texts = {}
    for name, entry in table.items():
        fields: dict[str, Any] = entry | {key: tuple(entry[key]) for key in LISTS if key in entry}
        texts[name] = NamedText(name=name, **fields)
    return texts


def find(name: str) -> NamedText:
    """Return the text of a name; raise `InputError`, which gives the nearest name, if there is none."""
    if name in registry():
        return registry()[name]
    for scheme, read in (("opus:", _of_opus), ("hf:", _of_hub), ("sacrebleu:", _of_test_set)):
        if name.startswith(scheme):
            return read(name)
    near = difflib.get_close_matches(name, registry(), 1)
    advice = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(registry())}."
    raise InputError(f"There is no text named {name!r}; {advice}")


def located(path: Path) -> Path | None:
    """Return the file in the cache folder that NAME/FILE stands for; None if no text of that name has such a file."""
    name, _, file = path.as_posix().rpartition("/")
    if not _is_name(name):
        return None
    text = find(name)
    cached = text.folder / file
    is_of_text = text.layout == UNKNOWN or file in {*text.train, *text.valid, *text.test} or cached.exists()
    return cached if is_of_text else None


def refuse_training_on_test_text(path: Path) -> None:
    """Raise `InputError` if NAME/FILE is a validation or test file of the text of that name."""
    name, _, file = path.as_posix().rpartition("/")
    if _is_name(name):
        text = find(name)
        if file in {*text.valid, *text.test} - {*text.train}:
            raise InputError(f"{path} is not for training: {name} publishes it to validate or test with.")


def _is_name(name: str) -> bool:
    return name in registry() or any(pattern.fullmatch(name) for pattern in (OPUS, HUB, TEST_SET))


def _of_opus(name: str) -> NamedText:
    """Return the text of `opus:CORPUS/VERSION/SOURCE-TARGET`, from the Moses archives of OPUS."""
    parts = OPUS.fullmatch(name)
    if not parts:
        raise InputError(f"{name!r} is not opus:CORPUS/VERSION/SOURCE-TARGET, such as opus:Books/v1/de-en.")
    corpus, version, *sides = parts.groups()
    pair = "-".join(sorted(sides))  # the archives exist in alphabetical order only
    train, valid, test = (tuple(f"{part}.{side}" for side in sides) for part in ("train", "valid", "test"))
    return NamedText(
        name=name, title=f"{corpus} {version} of OPUS, {' and '.join(sides)}", layout="pairs", licence="unknown",
        url=f"https://object.pouta.csc.fi/OPUS-{corpus}/{version}/moses/{pair}.txt.zip", held_out=2000,
        citation="Tiedemann 2012, Parallel Data, Tools and Interfaces in OPUS, LREC", train=train, valid=valid,
        test=test, files={f"train.{side}": f"{corpus}.{pair}.{side}" for side in sides},
    )  # fmt: skip


def _of_hub(name: str) -> NamedText:
    """Return the data set `hf:OWNER/NAME@REVISION`; what is in it is known once it is downloaded."""
    if not HUB.fullmatch(name):
        raise InputError(f"{name!r} is not hf:OWNER/NAME@REVISION, such as hf:Helsinki-NLP/opus_books@main/de-en.")
    text = NamedText(
        name=name, title="data set of the Hugging Face hub", layout=UNKNOWN, url=HUB_ADDRESS, licence="unknown",
        citation=f"{HUB_ADDRESS}/datasets/{name.removeprefix('hf:').partition('@')[0]}", train=(),
    )  # fmt: skip
    if not text.is_prepared:
        return text
    facts = json.loads((text.folder / DESCRIPTION).read_text(encoding="utf-8"))
    parts: dict[str, Any] = {part: tuple(facts[part]) for part in ("train", "valid", "test")}
    return dataclasses.replace(text, layout=facts["layout"], licence=facts["licence"], **parts)


def _of_test_set(name: str) -> NamedText:
    """Return the test set `sacrebleu:SET/SOURCE-TARGET`, which sacrebleu downloads."""
    match = TEST_SET.fullmatch(name)
    if not match:
        raise InputError(f"{name!r} is not sacrebleu:SET/SOURCE-TARGET, such as sacrebleu:wmt24/en-de.")
    dataset, *sides = match.groups()
    return NamedText(
        name=name, title=f"test set {dataset} of sacrebleu", layout="pairs", licence="unknown", train=(),
        url=f"sacrebleu:{dataset}", citation=f"sacrebleu --cite -t {dataset}",
        test=tuple(f"test.{side}" for side in sides),
    )  # fmt: skip


def licence_of(corpus: str) -> str | None:
    """Return the licence of a named corpus, or None if the corpus has no name."""
    return find(corpus).licence if _is_name(corpus) else None
