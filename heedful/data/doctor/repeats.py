"""Detection of rows that occur earlier in a text, or in another text. Works on disk, for texts of any size."""

import hashlib
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Self

import numpy as np

BUCKETS = 64  # files; sorted one at a time, so that only one is in memory
_RECORD = np.dtype([("key", "<u8"), ("row", "<i8")])


class Repeats:
    """A register of rows by their content; use it as a context manager.

    Rows are numbered from 0; rows of texts that must not be learned from get negative numbers.
    """

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory()
        self._files = [(Path(self._folder.name) / str(bucket)).open("w+b") for bucket in range(BUCKETS)]
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            file.close()
        self._folder.cleanup()

    def add(self, texts: Iterable[str], rows: Iterable[int]) -> None:
        """Register texts (any iterable) with their row numbers; texts that count as the same must be equal."""
        records = np.array([(_key(text), row) for text, row in zip(texts, rows, strict=True)], _RECORD)
        buckets = records["key"] % BUCKETS
        order = np.argsort(buckets, kind="stable")
        bounds = np.searchsorted(buckets[order], np.arange(BUCKETS + 1))
        for file, start, end in zip(self._files, bounds[:-1], bounds[1:], strict=True):
            file.write(records[order[start:end]].tobytes())

    def pairs(self) -> np.ndarray:
        """Return (row, earlier row) of every row that repeats an earlier one (R, 2), sorted by row.

        Negative numbers count as earlier than all others.
        """
        pairs = [np.zeros((0, 2), np.int64)]
        for file in self._files:
            file.seek(0)
            records = np.frombuffer(file.read(), _RECORD)
            records = records[np.lexsort((records["row"], records["key"]))]
            new = np.append(True, records["key"][1:] != records["key"][:-1])[: len(records)]
            first = records["row"][np.flatnonzero(new)][np.cumsum(new) - 1] if len(records) else records["row"]
            chosen = ~new & (records["row"] >= 0)
            pairs.append(np.stack([records["row"][chosen], first[chosen]], 1))
        together = np.concatenate(pairs)
        return together[np.argsort(together[:, 0])]


def normal_form(text: str) -> str:
    """Return a text in lower case with single spaces; texts that differ only in this count as the same."""
    return " ".join(text.lower().split())


def _key(text):
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())
