"""Recognising lines in another language than the rest of a text, by their letter trigrams.

Axes: N lines.
"""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from heedful.data.doctor.characters import code_points
from heedful.data.doctor.hashing import places

BITS = 18  # log2 of the size of the trigram table; a language has some ten thousand that matter
LENGTHS = (8, 16, 32, 64, 128, 256)  # lines of similar length are judged together, because short ones vary more
MIN_SPREAD = 0.05  # lower limit of every spread that deviations are divided by
FEWEST = 50  # fewest lines from which the spread of a length group is estimated
BORROWED = 3000  # weight of the usual letters as a prior for those of a few lines, in pieces: about forty lines


class Letters:
    """How often each letter trigram occurs in a text."""

    def __init__(self):
        self.counts = np.zeros(1 << BITS)

    def learn(self, pieces: "Pieces", chosen: np.ndarray | None = None) -> Self:
        """Count the pieces of all lines, or of those `chosen` (N,); return `self`."""
        codes = pieces.codes if chosen is None else pieces.codes[chosen[pieces.lines]]
        self.counts += np.bincount(codes, minlength=len(self.counts))
        return self

    def scores(self, pieces: "Pieces", learned_from: Any = 0.0) -> np.ndarray:
        """Return the log-probability of each line (N,), in nats.

        Args:
            pieces: `Pieces` of the lines.
            learned_from: 1 for lines that were learned from, whose own counts are left out, else 0 (N,).
        """
        return pieces.sums(np.log(self._shares(pieces, learned_from)))

    def beside(self, rest: "Letters", pieces: "Pieces", learned_from: np.ndarray, learned: np.ndarray) -> np.ndarray:
        """Return the log-likelihood ratio of each line (N,), these letters to `rest`, which includes them.

        The few counts are smoothed with those of `rest`, so that a line of rare words does not seem to fit them.

        Args:
            rest: `Letters` of the whole text.
            pieces: `Pieces` of the lines.
            learned_from: 1 for lines that these letters were learned from, else 0 (N,).
            learned: the same for `rest` (N,).
        """
        usual = rest._shares(pieces, learned)
        counts = np.maximum(self.counts[pieces.codes] - pieces.each(learned_from), 0)
        return pieces.sums(np.log((counts + BORROWED * usual) / (self.counts.sum() + BORROWED) / usual))

    def _shares(self, pieces, learned_from):
        counts = np.maximum(self.counts[pieces.codes] - pieces.each(learned_from), 0)
        return (counts + 0.5) / (self.counts.sum() + len(self.counts) / 2)


class Pieces:
    """The letter trigrams of lines, in lower case; all digits are mapped to 0.

    `codes` are their places in a table, `lines` the indices of their lines, `sizes` (N,) the number in each line.
    """

    def __init__(self, lines: Sequence[str]):
        letters, numbers = code_points([line.lower() for line in lines])
        letters = np.where((letters >= ord("0")) & (letters <= ord("9")), ord("0"), letters).astype(np.uint32)
        before, middle, after = letters[:-2], letters[1:-1], letters[2:]
        codes = places(BITS, before, middle, after)
        inside = middle != ord("\n")
        self.codes, self.lines = codes[inside], numbers[1:-1][inside]
        self.sizes = np.bincount(self.lines, minlength=len(lines))

    def each(self, values: Any) -> Any:
        """Return a value per piece from values per line (N,), or one value for all unchanged."""
        return values[self.lines] if np.ndim(values) else values

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Return the sum over each line of the values of its pieces (N,)."""
        return np.bincount(self.lines, values, minlength=len(self.sizes))


class Deviation:
    """How far a value deviates from those of lines of similar length, in robustly estimated standard deviations.

    Args:
        values: values of the lines of a sample (N,).
        sizes: lengths of these lines (N,).
    """

    def __init__(self, values: np.ndarray, sizes: np.ndarray):
        groups = np.digitize(sizes, LENGTHS)
        self._middle = np.full(len(LENGTHS) + 1, np.median(values) if len(values) else 0.0)
        self._spread = np.full(len(LENGTHS) + 1, _spread(values))
        for group in range(len(LENGTHS) + 1):
            chosen = values[groups == group]
            if len(chosen) >= FEWEST:
                self._middle[group], self._spread[group] = np.median(chosen), _spread(chosen)

    def __call__(self, values: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return the deviation of each value (N,)."""
        groups = np.digitize(sizes, LENGTHS)
        return (values - self._middle[groups]) / self._spread[groups]


def _spread(values):
    """Return the standard deviation of a normal distribution with the same median absolute deviation.

    The lower limit keeps small differences between nearly identical lines from being exaggerated.
    """
    return max(MIN_SPREAD, 1.4826 * np.median(np.abs(values - np.median(values)))) if len(values) else 1.0
