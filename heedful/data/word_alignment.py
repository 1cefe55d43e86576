"""Word alignments and translations of words, from parallel text alone: IBM model 1 with a preference for the diagonal.

After Brown et al. 1993, "The Mathematics of Statistical Machine Translation", and Dyer et al. 2013, "A Simple, Fast,
and Effective Reparameterization of IBM Model 2". Words may be pieces of words too.

Axes: S source words of a line, T its target words, P pairs of words that stand in the same pair of lines, E different
ones of these.
"""

import functools
from collections.abc import Iterator, Sequence

import numpy as np

ITERATIONS = 5
DIAGONAL = 4.0  # strength of the preference, in nats for the largest distance
PART_PAIRS = 1 << 22  # maximum number of pairs of words computed together, unless one line has more

Links = set[tuple[int, int]]  # of a word of the source and one of the target, both from 0
Pairs = Sequence[tuple[np.ndarray, np.ndarray]]  # the ids of the words of source and target, for each pair of lines


def aligned_both_ways(pairs: Sequence[tuple[Sequence[str], Sequence[str]]], count: int) -> list[Links]:
    """Return the links of the first `count` pairs on which the models of both directions agree.

    Args:
        pairs: the words of source and target; all are learned from.
        count: pairs to align.
    """
    forward = _best_links(pairs, count)
    backward = _best_links([(target, source) for source, target in pairs], count)
    return [one & {(source, target) for target, source in other} for one, other in zip(forward, backward, strict=True)]


def _best_links(pairs: Sequence[tuple[Sequence[str], Sequence[str]]], count: int) -> list[Links]:
    """Return for each target word of the first pairs its most likely source word."""
    ids: tuple[dict[str, int], dict[str, int]] = ({}, {})

    def encoded(words: Sequence[str], side: int) -> np.ndarray:
        known = ids[side]
        return np.array([known.setdefault(word.lower(), len(known)) for word in words], np.int64)

    lines = [(encoded(source, 0), encoded(target, 1)) for source, target in pairs]
    shares = TranslationTable(lines).shares(lines[:count])
    return [{(int(best), target) for target, best in enumerate(one.argmax(axis=1))} if one.size else set()
            for one in shares]  # fmt: skip


class TranslationTable:
    """The probabilities of words of the target as translations of words of the source, learned from pairs of lines.

    Args:
        pairs: the lines.

    Attributes:
        sources, targets: ids of the words that stand in the same pair of lines (E,), in the order of their ids.
        probabilities: of the target word, given the source word (E,).
    """

    def __init__(self, pairs: Pairs):
        self._size = 1 + max((int(target.max()) for _, target in pairs if len(target)), default=0)
        parts = list(_parts(pairs))
        codes: np.ndarray = np.zeros(0, np.int64)
        for part in parts:
            codes = np.union1d(codes, self._codes(part))
        self._entries = codes
        self.sources, self.targets = codes // self._size, codes % self._size
        self.probabilities = np.ones(len(codes))
        entries_of = [np.searchsorted(codes, self._codes(part)).astype(np.int32) for part in parts]
        for _ in range(ITERATIONS):
            counts = np.zeros(len(codes))
            for part, entries in zip(parts, entries_of, strict=True):
                counts += np.bincount(entries, self._shares(part, entries), len(codes))
            self.probabilities = counts / np.bincount(self.sources, counts)[self.sources]

    def shares(self, pairs: Pairs) -> list[np.ndarray]:
        """Return the share of each source word in each target word (T, S), for lines of those that were learned from.

        The shares of a target word sum to 1.
        """
        results = []
        for part in _parts(pairs):
            shares = self._shares(part, np.searchsorted(self._entries, self._codes(part)))
            ends = np.cumsum([len(source) * len(target) for source, target in part])
            results += [
                one.reshape(len(target), len(source))
                for one, (source, target) in zip(np.split(shares, ends[:-1]), part, strict=True)
            ]
        return results

    def _codes(self, part: Pairs) -> np.ndarray:
        """Return a number for each pair of words (P,), the same for the same words."""
        sources = np.concatenate([np.tile(source, len(target)) for source, target in part])
        targets = np.concatenate([np.repeat(target, len(source)) for source, target in part])
        return sources * np.int64(self._size) + targets

    def _shares(self, part: Pairs, entries: np.ndarray) -> np.ndarray:
        """Return the weights of pairs of words (P,), normalised over the source words of each word of the target."""
        sizes = np.array([(len(source), len(target)) for source, target in part])
        weights = self.probabilities[entries] * np.concatenate([_diagonal(*size) for size in sizes.tolist()])
        # The word of the target, among all words of all lines, that each pair of words belongs to.
        occurrence = np.repeat(np.arange(sizes[:, 1].sum()), np.repeat(sizes[:, 0], sizes[:, 1]))
        return weights / np.maximum(np.bincount(occurrence, weights), 1e-300)[occurrence]


def _parts(pairs: Pairs) -> Iterator[Pairs]:
    """Cut lines into parts of about `PART_PAIRS` pairs of words."""
    ends = np.cumsum([len(source) * len(target) for source, target in pairs])
    start = 0
    while start < len(pairs):
        done = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, done + PART_PAIRS, side="right")))
        yield pairs[start:stop]
        start = stop


@functools.lru_cache(256)
def _diagonal(size: int, length: int) -> np.ndarray:
    """Return the preference of each target word for each source word (T x S,), by their places."""
    rows, columns = ((np.arange(side) + 0.5) / max(1, side) for side in (length, size))
    return np.exp(-DIAGONAL * np.abs(rows[:, None] - columns[None, :])).ravel()
