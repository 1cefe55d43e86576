"""Detection of rows that occur earlier in a text, or in a text that it must not overlap with."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from heedful.data.doctor.repeats import Repeats, normal_form
from heedful.data.doctor.rows import Rows, is_complete
from heedful.data.labels import split_labels


class Seen:
    """A register of rows, by their full content and by their input text alone; use it as a context manager.

    Args:
        text: `Rows`; registered in chunks with `add`.
        others: by name, `Rows` of texts that must not be learned from; registered on entering the context.
    """

    def __init__(self, text: Rows, others: Mapping[str, Rows]):
        self._text, self._others = text, others
        self._label_rows: dict[str, int | None] = {}  # the row of each label; None if it has several

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as files:
            self._rows, self._sources = files.enter_context(Repeats()), files.enter_context(Repeats())
            self._places, count = [], 0  # the name of each other text, and how many rows came before it
            for name, other in self._others.items():
                self._places.append((name, count))
                for _, rows in other.chunks():
                    self.add([-1 - number for number in range(count, count + len(rows))], rows)
                    count += len(rows)
            self._files = files.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def add(self, numbers: Sequence[int], rows: Sequence[Any]) -> None:
        """Register rows with their numbers; skip rows with a missing or empty column."""
        numbered = [(number, row) for number, row in zip(numbers, rows, strict=True) if is_complete(row)]
        if "label" in self._text.columns:
            labelled = [(label, number) for number, row in numbered if number >= 0 for label in split_labels(row[0])]
            for label, number in labelled:
                self._label_rows[label] = None if label in self._label_rows else number
        numbers = [number for number, _ in numbered]
        self._rows.add(("\t".join(map(normal_form, row)) for _, row in numbered), numbers)
        self._sources.add((normal_form(row[self._text.texts[0]]) for _, row in numbered), numbers)

    def repeats(self) -> dict[str, np.ndarray]:
        """Return (row, earlier row) pairs for each kind of repetition (R, 2), sorted by row."""
        again, read = self._rows.pairs(), self._sources.pairs()
        read = read[~np.isin(read[:, 0], again[:, 0])]
        pairs_of = {
            "duplicate": again[again[:, 1] >= 0],
            "overlap": again[again[:, 1] < 0],
            "leak": read[read[:, 1] < 0],
        }
        if "label" in self._text.columns:
            pairs_of["contradiction"] = read[read[:, 1] >= 0]
        return pairs_of

    def rare_labels(self) -> np.ndarray:
        """Return the rows of labels that occur once (R,), sorted."""
        return np.unique(np.array([row for row in self._label_rows.values() if row is not None], np.int64))

    def place(self, number: int) -> str:
        """Return a description of where a row is."""
        if number >= 0:
            return f"line {number + 1}"
        name, first = next((name, first) for name, first in reversed(self._places) if first <= -1 - number)
        return f"line {-number - first} of the {name} text"
