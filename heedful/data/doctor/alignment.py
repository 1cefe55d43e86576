"""Whether two lines are translations of each other, judged by which words occur together in the rest of the text.

Axes: N pairs of lines, W words used per line.
"""

import collections
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from heedful.data.doctor.hashing import places
from heedful.data.normalization import UNSPACED

WORDS = 16  # the rarest words of a line are used: they are the most informative
FREQUENT = 0.1  # words in more than this share of the lines are ignored
BITS = 22  # log2 of the size of the table of word pairs
MAX_EVIDENCE = 12.0  # limit in nats on the evidence of one pair of lines, because some are free translations
# Probabilities per line that a text becomes misaligned, and that it becomes aligned again.
BREAKS, MENDS = 1e-4, 0.1
FARTHEST = 5  # largest shift that is recognised, in lines
SHORTEST = 4  # fewest lines from which a shift is estimated
CLEAR = -1.0  # mean nats per line below which a shift explains a stretch
_WORD = re.compile(f"[{UNSPACED}]|[^\\W{UNSPACED}]+")


class Associations:
    """Word associations between two languages, learned from pairs of lines that are mostly correct.

    The strength of two words is their pointwise mutual information over lines, in nats, shrunk towards zero if there is
    little evidence. A line's own contribution is removed before it is judged.

    Args:
        source, target: lines to learn from, N of each.
    """

    def __init__(self, source: Sequence[str], target: Sequence[str]):
        self._vocabularies = [_Vocabulary(side) for side in (source, target)]
        self._count = len(source)
        self._together = np.zeros(1 << BITS, np.float32)
        words = self._words(source, target)
        for part in _parts(len(source)):
            places = self._places(words[0][part], words[1][part])
            self._together += np.bincount(places[_real(words[0][part], words[1][part])], minlength=1 << BITS)
        learned_from = np.ones(len(source))
        unrelated = np.roll(words[1], len(source) // 2 + 1, axis=0)
        source, target = words
        scores, ours = self._scores(source, target, learned_from)
        self._fits = _Judge(scores, ours)
        self._unrelated = _Judge(*self._scores(words[0], unrelated, 0 * learned_from))

    def evidence(self, source: Sequence[str], target: Sequence[str], learned_from: np.ndarray) -> np.ndarray:
        """Return the evidence against each pair of lines (N,), in nats.

        It is the log-likelihood ratio of its score, unrelated lines to true pairs.

        Args:
            source, target: N lines each.
            learned_from: 1 for pairs that were learned from, else 0 (N,).
        """
        source, target = self._words(source, target)
        scores, words = self._scores(source, target, learned_from)
        return np.where(
            words > 0,
            np.clip(self._unrelated(scores, words) - self._fits(scores, words), -MAX_EVIDENCE, MAX_EVIDENCE),
            0,
        )

    def lateness(self, source: Sequence[str], target: Sequence[str]) -> int | None:
        """Return by how many lines the target of a stretch lags (negative: leads); None if no shift explains it.

        Args:
            source, target: lines that do not fit each other.
        """
        means = {}
        for lines in range(-FARTHEST, FARTHEST + 1):
            pairs = [(i, i + lines) for i in range(len(source)) if 0 <= i + lines < len(target)]
            if len(pairs) >= SHORTEST:
                ours, theirs = [source[i] for i, _ in pairs], [target[j] for _, j in pairs]
                means[lines] = self.evidence(ours, theirs, np.zeros(len(pairs))).mean()
        best = min(means, key=lambda lines: means[lines], default=0)
        return best if best and means[best] < CLEAR else None

    def _words(self, source, target):
        """Return the ids of the rarest known words of both sides, each (N, W), padded with -1."""
        return tuple(v.words(lines) for v, lines in zip(self._vocabularies, (source, target), strict=True))

    def _scores(self, source, target, learned_from):
        """Return the mean association (N,), in nats per word, and the smaller of both sides' numbers of words (N,)."""
        parts = [self._score(source[part], target[part], learned_from[part]) for part in _parts(len(source))]
        both = np.minimum((source >= 0).sum(1), (target >= 0).sum(1))
        return np.concatenate([*parts, np.zeros(0)]), both

    def _score(self, source, target, learned_from):
        alone = [
            np.maximum(np.where(ids < 0, 0, vocabulary.lines[ids]) - learned_from[:, None], 0)
            for vocabulary, ids in zip(self._vocabularies, (source, target), strict=True)
        ]
        expected = alone[0][:, :, None] * alone[1][:, None, :] / self._count
        together = np.maximum(self._together[self._places(source, target)] - learned_from[:, None, None], 0)
        strength = np.where(_real(source, target), np.log((together + 0.5) / (expected + 0.5)), -np.inf)
        best = np.concatenate([strength.max(2), strength.max(1)], 1)  # the best match of each word: (N, 2 W)
        known = np.isfinite(best)
        return np.where(known, best, 0).sum(1) / np.maximum(known.sum(1), 1)

    def _places(self, source, target):
        """Return the place in the table of each pair of words: (N, W, W)."""
        return places(BITS, source[:, :, None], target[:, None, :])


def _parts(count, size=2000):
    """Return slices of a long axis, to limit memory."""
    return [slice(start, start + size) for start in range(0, count, size)]


def _real(source, target):
    return (source >= 0)[:, :, None] & (target >= 0)[:, None, :]


class _Vocabulary:
    """The informative words of one side, in at least two lines but not too many; `lines` counts these lines (V,)."""

    def __init__(self, lines):
        counts: collections.Counter[Any] = collections.Counter()
        for line in lines:
            counts.update(_words(line))
        max_count = max(2, FREQUENT * len(lines))
        telling = [(word, count) for word, count in counts.most_common() if 2 <= count <= max_count]
        self.lines = np.array([count for _, count in telling] or [0], np.float32)
        self._ids = {word: number for number, (word, _) in enumerate(telling)}

    def words(self, lines):
        """Return the ids of each line's rarest words (N, W), padded with -1."""
        known = self._ids.get
        rarest = np.full((len(lines), WORDS), -1, np.int32)
        for row, line in zip(rarest, lines, strict=True):
            ids = sorted(number for word in _words(line) if (number := known(word)) is not None)[-WORDS:]
            row[: len(ids)] = ids  # the most frequent words have the lowest numbers
        return rarest


def _words(line):
    """Return a line's distinct words in lower case; in scripts without spaces, each character is a word.

    They keep the order of the line. The order of a set varies between processes, so ties would break differently.
    """
    return list(dict.fromkeys(_WORD.findall(line.lower())))


class _Judge:
    """Normal distributions of scores, by the number of words scored, with robust estimates of centre and spread."""

    GROUPS = (1, 2, 3, 4, 6, 8, 12)

    def __init__(self, scores, words):
        groups = np.digitize(words, self.GROUPS)
        everywhere = scores[words > 0]
        self._middle, self._spread = np.zeros(len(self.GROUPS) + 1), np.ones(len(self.GROUPS) + 1)
        for group in range(1, len(self.GROUPS) + 1):
            chosen = scores[groups == group]
            chosen = chosen if len(chosen) >= 50 else everywhere
            if len(chosen):
                self._middle[group] = np.median(chosen)
                self._spread[group] = 1.4826 * np.median(np.abs(chosen - self._middle[group])) + 0.05

    def __call__(self, scores, words):
        """Return the log-density of each score."""
        groups = np.digitize(words, self.GROUPS)
        z = (scores - self._middle[groups]) / self._spread[groups]
        return -0.5 * z**2 - np.log(self._spread[groups])


def stretches(evidence: np.ndarray) -> np.ndarray:
    """Return which lines are in misaligned stretches (N,): the most likely sequence of two states (Viterbi 1967).

    Args:
        evidence: evidence against each pair, from `Associations.evidence`.
    """
    stay, leave, enter, keep = np.log1p(-BREAKS), np.log(MENDS), np.log(BREAKS), np.log1p(-MENDS)
    fits, not_fits = 0.0, enter
    came_from = np.empty((len(evidence), 2), bool)  # whether the previous state was misaligned
    for part in _parts(len(evidence)):
        for row, against in zip(came_from[part], evidence[part].tolist(), strict=True):
            row[0], row[1] = not_fits + leave > fits + stay, not_fits + keep > fits + enter
            fits, not_fits = max(fits + stay, not_fits + leave), max(fits + enter, not_fits + keep) + against
    misaligned = np.empty(len(evidence), bool)
    state = int(not_fits > fits)
    for index in range(len(evidence) - 1, -1, -1):
        misaligned[index] = state
        state = int(came_from[index, state])
    return misaligned
