"""Text as ids: encoded once as a stream, filtered by length, cached on disk, read through memory maps."""

import contextlib
import itertools
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from heedful.core.errors import InputError
from heedful.data.bpe_dropout import OF_A_WORD, VERSIONS, MergeDropout
from heedful.data.corpus import Corpus
from heedful.data.ragged import Ragged, RaggedWriter, join
from heedful.data.text_cache import kept_in_cache
from heedful.data.tokenizer import Tokenizer

SIDES = ("source", "target")
CHUNK = 20_000  # lines encoded at a time: keeps the tokenizer's threads busy and needs little memory


@dataclass(frozen=True)
class Filtered:
    """How many pairs the length filter kept and dropped."""

    kept: int
    too_long: int
    empty: int

    def __str__(self) -> str:
        total = self.kept + self.too_long + self.empty
        dropped = self.too_long + self.empty
        text = f"{self.kept:,} of {total:,} pairs kept"
        if dropped:
            text += f" ({dropped / total:.2%} dropped: {self.too_long:,} too long, {self.empty:,} with an empty side)"
        return text


@dataclass(frozen=True)
class EncodedPairs:
    """Source and target ids of a corpus, and what the filter left out.

    With several `versions` (BPE-dropout), all pairs follow in another segmentation, and so on.
    """

    source: Ragged
    target: Ragged
    filtered: Filtered
    versions: int = 1

    @property
    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """The lengths of source and target (N,) of each pair, in the version in which each side is longest."""
        source, target = (side.lengths.reshape(self.versions, -1).max(axis=0) for side in (self.source, self.target))
        return source, target


def encode(
    corpus: Corpus,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    max_tokens: int,
    cache: Path | None = None,
    dropout: tuple[float, int] = (0.0, 0),
) -> "EncodedPairs":
    """Encode `corpus`, leaving out pairs with an empty side or more than `max_tokens` on a side.

    Args:
        corpus: a `Corpus`; read as a stream.
        source_tokenizer, target_tokenizer: may be the same.
        max_tokens: longest sequence kept, its end token included.
        cache: folder for encoded corpora; reused for the same text, tokenizers and limit.
        dropout: rate and seed of BPE-dropout, see `MergeDropout`; a rate of 0: none.

    Raises:
        InputError: no pair is left.
    """
    parts = [corpus.fingerprint, source_tokenizer.to_json(), target_tokenizer.to_json(), str(max_tokens)]
    parts += [f"{VERSIONS} versions, {OF_A_WORD} of a word, {dropout}"] if dropout[0] else []

    def write(folder):
        if dropout[0]:
            dropped = [MergeDropout(tokenizer, *dropout) for tokenizer in (source_tokenizer, target_tokenizer)]
            filtered = _write_versions(corpus, dropped, max_tokens, folder)
        else:
            filtered = _write(corpus, source_tokenizer, target_tokenizer, max_tokens, folder)
        _require_pairs(filtered, corpus, max_tokens)

    return kept_in_cache(parts, cache, write, _read)


def _write(corpus, source_tokenizer, target_tokenizer, max_tokens, folder):
    kept = too_long = empty = 0
    tokenizers = source_tokenizer, target_tokenizer
    with RaggedWriter(folder, "source") as sources, RaggedWriter(folder, "target") as targets:
        pairs = iter(corpus)
        while chunk := list(itertools.islice(pairs, CHUNK)):
            encoded = [t.encode_batch(side) for t, side in zip(tokenizers, zip(*chunk, strict=True), strict=True)]
            fitting = []
            for pair in zip(*encoded, strict=True):
                if not all(pair):
                    empty += 1
                elif max(map(len, pair)) >= max_tokens:  # leave room for the end token
                    too_long += 1
                else:
                    fitting.append(pair)
            sources.add(source for source, _ in fitting)
            targets.add(target for _, target in fitting)
            kept += len(fitting)
    filtered = Filtered(kept, too_long, empty)
    (folder / "filtered.json").write_text(json.dumps(asdict(filtered)))
    return filtered


def _write_versions(corpus, dropped, max_tokens, folder):
    """Write `VERSIONS` segmentations of each pair; one that is too long is replaced by the usual one."""
    kept = too_long = empty = first = 0
    pairs = iter(corpus)
    with contextlib.ExitStack() as opened:
        writers = [
            [opened.enter_context(RaggedWriter(folder, f"{side}_{version}")) for version in range(VERSIONS)]
            for side in SIDES
        ]
        while chunk := list(itertools.islice(pairs, CHUNK)):
            sides = [each.versions(texts, first) for each, texts in zip(dropped, zip(*chunk, strict=True), strict=True)]
            first += len(chunk)
            fitting = []
            for pair in zip(*sides, strict=True):
                if not all(side[0] for side in pair):
                    empty += 1
                elif max(len(side[0]) for side in pair) >= max_tokens:  # leave room for the end token
                    too_long += 1
                else:
                    fitting.append([[ids if len(ids) < max_tokens else side[0] for ids in side] for side in pair])
            for number, of_side in enumerate(writers):
                for version, writer in enumerate(of_side):
                    writer.add(pair[number][version] for pair in fitting)
            kept += len(fitting)
    for side in SIDES:
        join(folder, side, [f"{side}_{version}" for version in range(VERSIONS)])
    filtered = Filtered(kept, too_long, empty)
    (folder / "filtered.json").write_text(json.dumps(asdict(filtered)))
    return filtered


def _read(folder, mapped):
    filtered = Filtered(**json.loads((folder / "filtered.json").read_text()))
    source, target = (Ragged.read(folder, side, mapped) for side in SIDES)
    versions = len(source) // max(1, filtered.kept)
    if not len(source) == len(target) == filtered.kept * versions:
        raise ValueError(f"{len(source):,} sources, {len(target):,} targets and {filtered.kept:,} pairs")
    return EncodedPairs(source, target, filtered, max(1, versions))


class NoPairLeft(InputError):
    """All pairs of a text are too long, or have an empty side."""


def _require_pairs(filtered, corpus, max_tokens):
    if filtered.kept:
        return
    if not filtered.too_long and not filtered.empty:
        raise InputError(f"{corpus.name} is empty.")
    raise NoPairLeft(
        f"No pair of {corpus.name} is left: {filtered.too_long:,} have {max_tokens:,} tokens or more on a side, "
        f"which is too long (data.max_tokens; to validate on, model.max_length), {filtered.empty:,} have an empty side."
    )
