"""Word alignments of a parallel text, from its text alone: IBM model 1 with a preference for the diagonal.

After Brown et al. 1993, "The Mathematics of Statistical Machine Translation", and Dyer et al. 2013, "A Simple, Fast,
and Effective Reparameterization of IBM Model 2". Axes: P pairs of words that stand in the same pair of lines.
"""

from collections.abc import Sequence

import numpy as np

ITERATIONS = 5
DIAGONAL = 4.0  # strength of the preference, in nats for the largest distance

Links = set[tuple[int, int]]  # of a word of the source and one of the target, both from 0


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
    encoded = [
        tuple(np.array([known.setdefault(word.lower(), len(known)) for word in side], np.int64)
              for known, side in zip(ids, pair, strict=True))
        for pair in pairs
    ]  # fmt: skip
    sizes = [(len(source), len(target)) for source, target in encoded]
    if not any(source * target for source, target in sizes):
        return [set() for _ in range(count)]
    sources = np.concatenate([np.tile(source, len(target)) for source, target in encoded])
    targets = np.concatenate([np.repeat(target, len(source)) for source, target in encoded])
    prior = np.concatenate([_diagonal(*size).ravel() for size in sizes])
    # The word of the target, among all words of all lines, that each pair of words belongs to.
    occurrence = np.repeat(np.arange(sum(target for _, target in sizes)), np.repeat(*np.array(sizes).T))
    codes, inverse = np.unique(sources * len(ids[1]) + targets, return_inverse=True)
    source_of = codes // len(ids[1])
    table = np.ones(len(codes))
    for _ in range(ITERATIONS):
        counts = np.bincount(inverse, _shares(table[inverse] * prior, occurrence), len(codes))
        table = counts / np.bincount(source_of, counts)[source_of]
    share = _shares(table[inverse] * prior, occurrence)
    ends = np.cumsum([source * target for source, target in sizes[:count]])
    parts = np.split(share[: ends[-1]], ends[:-1]) if count else []
    return [
        {(int(best), target) for target, best in enumerate(part.reshape(length, size).argmax(axis=1))}
        if size
        else set()
        for part, (size, length) in zip(parts, sizes, strict=False)
    ]


def _diagonal(size: int, length: int) -> np.ndarray:
    """Return the preference of each target word for each source word (T, S), by their places."""
    rows, columns = ((np.arange(side) + 0.5) / max(1, side) for side in (length, size))
    return np.exp(-DIAGONAL * np.abs(rows[:, None] - columns[None, :]))


def _shares(weights: np.ndarray, occurrence: np.ndarray) -> np.ndarray:
    """Return the weights (P,), normalised over the source words of each word of the target."""
    return weights / np.maximum(np.bincount(occurrence, weights), 1e-300)[occurrence]
