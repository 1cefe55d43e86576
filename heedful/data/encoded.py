"""Text as ids: encoded once as a stream, filtered by length, cached on disk, read through memory maps."""

import contextlib
import functools
import hashlib
import itertools
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from heedful.data.corpus import Corpus
from heedful.data.tokenizer import Tokenizer
from heedful.errors import InputError

CHUNK = 20_000  # lines encoded at a time: keeps the tokenizer's threads busy and needs little memory


@dataclass(frozen=True)
class Filtered:
    """How many pairs the length filter kept and dropped."""

    kept: int
    too_long: int
    empty: int

    def __str__(self):
        total = self.kept + self.too_long + self.empty
        dropped = self.too_long + self.empty
        text = f"{self.kept:,} of {total:,} pairs kept"
        if dropped:
            text += f" ({dropped / total:.2%} dropped: {self.too_long:,} too long, {self.empty:,} with an empty side)"
        return text


class Ragged:
    """Many id sequences of different lengths in one flat array.

    Args:
        flat: all ids, one sequence after the other.
        offsets: the start of each sequence, then the end of the last one.
    """

    def __init__(self, flat: np.ndarray, offsets: np.ndarray):
        self.flat, self.offsets = flat, offsets

    @classmethod
    def of(cls, sequences: Iterable[Sequence[int]]) -> "Ragged":
        """Concatenate id sequences."""
        sequences = list(sequences)
        offsets = np.concatenate([[0], np.cumsum([len(ids) for ids in sequences], dtype=np.int64)])
        return cls(np.fromiter(itertools.chain.from_iterable(sequences), np.int32, count=offsets[-1]), offsets)

    @classmethod
    def read(cls, folder: Path, name: str, mapped: bool) -> "Ragged":
        """Read NAME.bin and NAME_offsets.npy; `mapped` memory-maps the ids."""
        path = folder / f"{name}.bin"
        flat = np.memmap(path, np.int32, "r") if mapped else np.fromfile(path, np.int32)
        offsets = np.load(folder / f"{name}_offsets.npy")
        if len(flat) != offsets[-1]:
            raise ValueError(f"{path} has {len(flat):,} ids, not {offsets[-1]:,}")
        return cls(flat, offsets)

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """Number of ids of each sequence."""
        return np.diff(self.offsets)

    def __len__(self):
        return len(self.offsets) - 1

    def __getitem__(self, index):
        return np.asarray(self.flat[self.offsets[index] : self.offsets[index + 1]])

    def padded(self, rows: Sequence[int] | np.ndarray, length: int) -> np.ndarray:
        """Return the sequences `rows` as an array (len(rows), length), padded with 0; row -1 is empty."""
        rows = np.asarray(rows)
        starts = np.where(rows < 0, 0, self.offsets[rows])
        lengths = np.where(rows < 0, 0, self.offsets[rows + 1] - starts)
        columns = np.arange(length)
        real = columns < lengths[:, None]
        out = np.zeros((len(rows), length), np.int32)
        out[real] = self.flat[(starts[:, None] + columns)[real]]
        return out


@dataclass(frozen=True)
class EncodedPairs:
    """Source and target ids of a corpus, and what the filter left out."""

    source: Ragged
    target: Ragged
    filtered: Filtered


def encode(
    corpus: Corpus, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer, max_tokens: int, cache: Path | None = None
) -> "EncodedPairs":
    """Encode `corpus`, leaving out pairs with an empty side or more than `max_tokens` on a side.

    Args:
        corpus: a `Corpus`; read as a stream.
        source_tokenizer, target_tokenizer: may be the same.
        max_tokens: longest sequence kept, its end token included.
        cache: folder for encoded corpora; reused for the same text, tokenizers and limit.

    Raises:
        InputError: no pair is left.
    """
    parts = (corpus.fingerprint, source_tokenizer.to_json(), target_tokenizer.to_json(), str(max_tokens), "1")

    def write(folder):
        filtered = _write(corpus, source_tokenizer, target_tokenizer, max_tokens, folder)
        _require_pairs(filtered, corpus, max_tokens)

    return kept_in_cache(parts, cache, write, _read)


def kept_in_cache(parts, cache: Path | None, write: Callable[[Path], Any], read: Callable[..., Any]) -> Any:
    """Return what `read` loads from a folder that `write` has filled; reuse a cached folder that is still readable.

    Args:
        parts: strings that determine the content.
        cache: the folder of all cached content; None keeps nothing.
        write: called with a new folder, to fill it.
        read: called with the folder and whether its arrays may be memory-mapped.
    """
    key = hashlib.sha256()
    for part in parts:
        key.update(hashlib.sha256(part.encode()).digest())
    folder = Path(cache) / key.hexdigest()[:32] if cache else None
    if folder and folder.is_dir():
        try:
            return read(folder, mapped=True)
        except (ValueError, EOFError, FileNotFoundError):  # for example files that a power failure truncated
            aside = folder.with_name(f"{folder.name}.{os.getpid()}.{time.monotonic_ns()}")
            with contextlib.suppress(FileNotFoundError):  # another run may have moved it already
                folder.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)
    if folder:
        folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder and folder.parent) as temporary:
        made = Path(temporary) / "encoded"
        made.mkdir()
        write(made)
        if folder is None:
            return read(made, mapped=False)
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another run has written the same content
                raise
    return read(folder, mapped=True)


def _write(corpus, source_tokenizer, target_tokenizer, max_tokens, folder):
    too_long = empty = 0
    offsets = [[0], [0]]
    with (folder / "source.bin").open("wb") as source_file, (folder / "target.bin").open("wb") as target_file:
        pairs = iter(corpus)
        while chunk := list(itertools.islice(pairs, CHUNK)):
            sides = zip(*chunk, strict=True)
            encoded = [
                t.encode_batch(side) for t, side in zip((source_tokenizer, target_tokenizer), sides, strict=True)
            ]
            for source, target in zip(*encoded, strict=True):
                if not source or not target:
                    empty += 1
                elif max(len(source), len(target)) >= max_tokens:  # leave room for the end token
                    too_long += 1
                else:
                    for file, ends, ids in ((source_file, offsets[0], source), (target_file, offsets[1], target)):
                        file.write(np.asarray(ids, np.int32).tobytes())
                        ends.append(ends[-1] + len(ids))
    for name, ends in zip(("source", "target"), offsets, strict=True):
        np.save(folder / f"{name}_offsets.npy", np.asarray(ends, np.int64))
    filtered = Filtered(len(offsets[0]) - 1, too_long, empty)
    (folder / "filtered.json").write_text(json.dumps(asdict(filtered)))
    return filtered


def _read(folder, mapped):
    filtered = Filtered(**json.loads((folder / "filtered.json").read_text()))
    return EncodedPairs(Ragged.read(folder, "source", mapped), Ragged.read(folder, "target", mapped), filtered)


def _require_pairs(filtered, corpus, max_tokens):
    if filtered.kept:
        return
    if not filtered.too_long and not filtered.empty:
        raise InputError(f"{corpus.name} is empty.")
    raise InputError(
        f"No pair of {corpus.name} is left: {filtered.too_long:,} have {max_tokens:,} tokens or more on a side, "
        f"which is too long (data.max_tokens; to validate on, model.max_length), {filtered.empty:,} have an empty side."
    )
