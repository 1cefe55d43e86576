"""The language of a line, recognised from the rest of the text by pieces of three letters.

Axes: N lines.
"""

import numpy as np

from heedful.doctor.characters import code_points
from heedful.doctor.hashing import places

BITS = 18  # of the table of pieces: a language has some ten thousand that matter
LENGTHS = (8, 16, 32, 64, 128, 256)  # lines of similar length are judged together, for short ones vary more
LEAST_SPREAD = 0.05  # of what is judged in units of its spread
FEWEST = 50  # lines that tell how much a length varies
BORROWED = 3000  # pieces for which the letters of a few lines borrow the usual ones: about forty lines of them


class Letters:
    """How often each piece of three letters occurs in a text."""

    def __init__(self):
        self.counts = np.zeros(1 << BITS)

    def learn(self, pieces, chosen=None):
        """Count the pieces of lines, all or those `chosen` (N,); return the letters themselves."""
        codes = pieces.codes if chosen is None else pieces.codes[chosen[pieces.lines]]
        self.counts += np.bincount(codes, minlength=len(self.counts))
        return self

    def scores(self, pieces, own=0.0):
        """Return the log-probability of each line (N,), in nats.

        Args:
            pieces: `Pieces` of the lines.
            own: 1 for lines that were learned from, which are judged by the others only, else 0 (N,).
        """
        return pieces.sums(np.log(self._shares(pieces, own)))

    def beside(self, rest, pieces, own, learned):
        """Return the log-likelihood of each line (N,) in these letters over that in `rest`, of which they are a part.

        What these few letters do not know they take from `rest`, so that a line of rare words is not theirs.

        Args:
            rest: `Letters` of the whole text.
            pieces: `Pieces` of the lines.
            own: 1 for lines that these letters were learned from, else 0 (N,).
            learned: the same for `rest` (N,).
        """
        usual = rest._shares(pieces, learned)
        counts = np.maximum(self.counts[pieces.codes] - pieces.each(own), 0)
        return pieces.sums(np.log((counts + BORROWED * usual) / (self.counts.sum() + BORROWED) / usual))

    def _shares(self, pieces, own):
        counts = np.maximum(self.counts[pieces.codes] - pieces.each(own), 0)
        return (counts + 0.5) / (self.counts.sum() + len(self.counts) / 2)


class Pieces:
    """The three-letter pieces of lines, in lower case; all digits are alike.

    `codes` are their places in a table, `lines` the numbers of their lines, `sizes` (N,) how many each line has.
    """

    def __init__(self, lines):
        letters, numbers = code_points([line.lower() for line in lines])
        letters = np.where((letters >= ord("0")) & (letters <= ord("9")), ord("0"), letters).astype(np.uint32)
        before, middle, behind = letters[:-2], letters[1:-1], letters[2:]
        codes = places(BITS, before, middle, behind)
        inside = middle != ord("\n")
        self.codes, self.lines = codes[inside], numbers[1:-1][inside]
        self.sizes = np.bincount(self.lines, minlength=len(lines))

    def each(self, values):
        """Return values of the lines, (N,) or one for all, as values of their pieces."""
        return values[self.lines] if np.ndim(values) else values

    def sums(self, values):
        """Return the sums of values of the pieces over each line (N,)."""
        return np.bincount(self.lines, values, minlength=len(self.sizes))


class Deviation:
    """How unusual a value of a line is beside lines of its length: in standard deviations, estimated robustly.

    Args:
        values: of a sample (N,).
        sizes: lengths of its lines (N,).
    """

    def __init__(self, values, sizes):
        groups = np.digitize(sizes, LENGTHS)
        self._middle = np.full(len(LENGTHS) + 1, np.median(values) if len(values) else 0.0)
        self._spread = np.full(len(LENGTHS) + 1, _spread(values))
        for group in range(len(LENGTHS) + 1):
            chosen = values[groups == group]
            if len(chosen) >= FEWEST:
                self._middle[group], self._spread[group] = np.median(chosen), _spread(chosen)

    def __call__(self, values, sizes):
        """Return the deviation of each value (N,)."""
        groups = np.digitize(sizes, LENGTHS)
        return (values - self._middle[groups]) / self._spread[groups]


def _spread(values):
    """Return the standard deviation that normally distributed values with this median deviation would have.

    Lines that are nearly alike have hardly any, and each small difference would be many times as large.
    """
    return max(LEAST_SPREAD, 1.4826 * np.median(np.abs(values - np.median(values)))) if len(values) else 1.0
