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


def _best_links(pairs, count):
    """Return for each target word of the first pairs its most likely source word."""
    source_ids, target_ids = ({}, {})
    sources, targets, prior, occurrence, where = [], [], [], [], []
    occurrences = 0
    for number, (source, target) in enumerate(pairs):
        size, length = len(source), len(target)
        if not size or not length:
            continue
        ids = np.array([source_ids.setdefault(word.lower(), len(source_ids)) for word in source])
        others = np.array([target_ids.setdefault(word.lower(), len(target_ids)) for word in target])
        distance = np.abs((np.arange(length)[:, None] + 0.5) / length - (np.arange(size)[None, :] + 0.5) / size)
        sources.append(np.tile(ids, length))
        targets.append(np.repeat(others, size))
        prior.append(np.exp(-DIAGONAL * distance).ravel())
        occurrence.append(occurrences + np.repeat(np.arange(length), size))
        where.append((number, occurrences, size, length))
        occurrences += length
    if not where:
        return [set() for _ in range(count)]
    sources, prior, occurrence = map(np.concatenate, (sources, prior, occurrence))
    codes, inverse = np.unique(sources * len(target_ids) + np.concatenate(targets), return_inverse=True)
    of_code = codes // len(target_ids)  # the source word of each pair of words
    table = np.ones(len(codes))
    for _ in range(ITERATIONS):
        share = _shares(table[inverse] * prior, occurrence, occurrences)
        table = np.bincount(inverse, share, len(codes))
        table /= np.bincount(of_code, table, len(source_ids))[of_code]
    share = _shares(table[inverse] * prior, occurrence, occurrences)
    links, start = [set() for _ in range(count)], 0
    for number, _, size, length in where:
        if number < count:
            best = share[start : start + size * length].reshape(length, size).argmax(axis=1)
            links[number] = {(int(one), target) for target, one in enumerate(best)}
        start += size * length
    return links


def _shares(weights, occurrence, occurrences):
    """Return the weights (P,), normalised over the source words of each word of the target."""
    return weights / np.maximum(np.bincount(occurrence, weights, occurrences), 1e-300)[occurrence]
