"""Statistics of a text, learned from a sample of it, against which its rows are judged.

Axes: N rows.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from heedful.data.doctor.alignment import Associations
from heedful.data.doctor.characters import CHARACTERS, FIRST_SCRIPT, count_kinds
from heedful.data.doctor.languages import Deviation, Letters, Pieces
from heedful.data.doctor.rows import LONGEST

HOME = 0.01  # share of a side's letters from which a script counts as usual there
LETTERS = 4  # fewer letters do not identify a script
STRANGE, UNRELATED = -3.0, 2.0  # foreign: letter deviation below the first, evidence against the pair above the second
ALONE = -4.0  # replaces `STRANGE` for a text with one side
FOREIGN, EACH = 10.0, 0.2  # nats per line and per piece above which a line is in another language ...
EACH_ALONE = 0.6  # (replaces `EACH` for a text with one side)
FITS = -4.0  # ... unless the evidence against the pair is below this: then it is a translation
ROUNDS = 3  # iterations that re-estimate which lines are foreign
TOO_LONG = 6.0  # deviation of a pair's lengths
FEWEST = 10  # fewest lines from which a foreign language is learned
PAIRS = 500  # fewest pairs from which word associations are learned


class Usual:
    """Statistics of the rows of a text.

    Args:
        columns: names of the columns.
        texts: indices of the text columns: one, or source and target.
        sample: rows that have all their columns.
    """

    def __init__(self, columns: tuple[str, ...], texts: list[int], sample: list[Any]):
        self._texts = texts
        lines = self._lines(sample)
        self._ratio = 1.0
        self._lengths: Any = None
        self._associations: Associations | None = None
        if len(texts) == 2:
            sizes = [_sizes(side) for side in lines]
            self._ratio = sizes[1].sum() / max(1, sizes[0].sum())
            self._lengths = Deviation(*self._imbalance(*sizes))
            if len(sample) >= PAIRS:
                self._associations = Associations(*lines)
        learned_from = np.ones(len(sample))
        against = self._against(lines, learned_from)
        self._sides = [Side(side) for side in lines]
        self.scripts = {columns[text]: side.scripts for text, side in zip(texts, self._sides, strict=True)}
        for side, own_lines, other in zip(self._sides, lines, self._sides[::-1], strict=True):
            side.look_for_foreign(own_lines, against, other if len(texts) == 2 else None)

    def judge(self, rows: list[Any], learned_from: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Judge rows that have all their columns.

        Args:
            rows: N rows.
            learned_from: 1 for rows in the sample, else 0 (N,).

        Returns:
            for each of `script`, `language` and `length`, which rows are of that kind (N,), and the evidence against
            each pair of lines (N,), in nats.
        """
        lines = self._lines(rows)
        against = self._against(lines, learned_from)
        unusual = {
            "script": np.any([side.scripted(texts) for side, texts in zip(self._sides, lines, strict=True)], 0),
            "language": np.any(
                [side.foreign(texts, learned_from, against) for side, texts in zip(self._sides, lines, strict=True)], 0
            ),
        }
        if self._lengths is not None:
            unusual["length"] = np.abs(self._lengths(*self._imbalance(*map(_sizes, lines)))) > TOO_LONG
        return unusual, against

    def lateness(self, rows: Any) -> int | None:
        """Return by how many rows the target lags in a misaligned stretch; None if no shift explains it."""
        if self._associations is None:
            raise ValueError("Too little text for associations.")
        return self._associations.lateness(*self._lines(rows))

    @property
    def knows_pairs(self) -> bool:
        """Whether there was enough text to learn word associations."""
        return self._associations is not None

    def _lines(self, rows):
        return [[row[text][:LONGEST] for row in rows] for text in self._texts]

    def _against(self, lines, learned_from):
        """Return the evidence against each pair of lines (N,), 0 without word associations."""
        if self._associations is None:
            return np.zeros(len(lines[0]))
        source, target = lines
        return self._associations.evidence(source, target, learned_from)

    def _imbalance(self, source, target):
        """Return the excess length of the target, in units of its expected variation, and the total length.

        The variance of a length grows with the length (Gale and Church 1993).
        """
        return (target - source * self._ratio) / np.sqrt(source + target + 10), source + target


class Side:
    """Statistics of the lines of one side: its scripts and its letters."""

    def __init__(self, lines: Sequence[str]):
        counts = count_kinds(lines)[:, FIRST_SCRIPT:].sum(0)
        self._home = counts >= HOME * max(1, counts.sum())
        self.scripts = [name for name, home in zip(CHARACTERS[FIRST_SCRIPT:], self._home, strict=True) if home]
        self._letters = Letters().learn(Pieces(lines))
        self._other: Any = None
        self._strange, self._each = Letters(), EACH_ALONE

    def look_for_foreign(self, lines: Sequence[str], against: np.ndarray, other: "Side | None") -> None:
        """Learn the foreign languages in the sample: that of the other side, and one unlike both sides.

        Args:
            lines: the sample (N,).
            against: evidence against each pair (N,).
            other: the other `Side`, or None.
        """
        learned_from = np.ones(len(lines))
        pieces = Pieces(lines)
        means = self._letters.scores(pieces, learned_from) / np.maximum(pieces.sizes, 1)
        deviation = Deviation(means, pieces.sizes)(means, pieces.sizes)
        strange = deviation < (ALONE if other is None else STRANGE)
        apart = np.ones(len(lines), bool) if other is None else against > UNRELATED
        if other is not None:
            self._other, self._each = other._letters, EACH
            apart &= ~self._clear(self._swapped(pieces, learned_from), pieces)
        strange &= apart
        for _ in range(ROUNDS):
            letters = Letters().learn(pieces, strange)
            strange = apart & self._clear(letters.beside(self._letters, pieces, strange, learned_from), pieces)
        if strange.sum() >= FEWEST:
            self._strange = Letters().learn(pieces, strange)

    def scripted(self, lines: Sequence[str]) -> np.ndarray:
        """Return which lines are in a script that is not usual on this side (N,)."""
        counts = count_kinds(lines)[:, FIRST_SCRIPT:]
        return (counts.sum(1) >= LETTERS) & (counts[:, ~self._home].sum(1) > counts.sum(1) / 2)

    def foreign(self, lines: Sequence[str], learned_from: np.ndarray, against: np.ndarray) -> np.ndarray:
        """Return which lines are in another language (N,).

        Args:
            lines: N lines.
            learned_from: 1 for lines in the sample, else 0 (N,).
            against: evidence against each pair (N,).
        """
        pieces = Pieces(lines)
        # The lines that `_strange` was learned from are not recorded; assuming the whole sample does little harm.
        other = self._strange.beside(self._letters, pieces, learned_from, learned_from)
        if self._other is not None:
            other = np.maximum(other, self._swapped(pieces, learned_from))
        return self._clear(other, pieces) & (against > FITS)

    def _swapped(self, pieces, learned_from):
        """Return the log-likelihood ratio of each line, other side to this side (N,)."""
        return self._other.scores(pieces) - self._letters.scores(pieces, learned_from)

    def _clear(self, likelihood, pieces):
        """Return which lines have more evidence for another language than a few borrowed words explain (N,)."""
        return likelihood > np.maximum(FOREIGN, self._each * pieces.sizes)


def _sizes(lines):
    return np.array([len(line) for line in lines], int)
