"""Training examples for language models: windows of one long stream, or documents packed into rows.

Axes: B rows of a batch, T length of a row, N ids of a stream.
"""

import functools
from collections.abc import Iterator

import numpy as np

from heedful.core.special_tokens import END_ID, START_ID
from heedful.data.documents import EncodedTexts
from heedful.data.order import PACKED_ROWS, WINDOWS, cycle, random_numbers
from heedful.data.packing import pack


def as_stream(texts: EncodedTexts) -> np.ndarray:
    """Return all ids of `EncodedTexts` as one stream; an end token follows each document if there are several."""
    flat, offsets = np.asarray(texts.ids.flat), texts.ids.offsets
    return np.insert(flat, offsets[1:], END_ID) if len(texts.ids) > 1 else flat


class Windows:
    """Next-token examples from one long stream; each epoch cuts it at a random phase and shuffles the windows.

    The context of a token therefore varies between epochs. Each token is predicted once per epoch, except for one or
    two windows at the ends. Batch n is a pure function of (seed, n).

    Args:
        stream: ids (N,).
        length: T, tokens per window.
        rows: B, windows per batch.
        seed: seed of the phases and the order.
    """

    def __init__(self, stream: np.ndarray, length: int, rows: int, seed: int = 0):
        self.stream, self.length, self.rows, self.seed = stream, length, rows, seed
        self.windows = (len(stream) - 1) // length  # whole windows; the last label is the token after a window
        if self.windows > 1:
            self.windows -= 1  # so that every phase yields the same number

    def batch(self, number: int) -> dict[str, np.ndarray]:
        """Return batch `number`: ids, labels and float32 weights, each (B, T)."""
        return self._read(cycle(self._starts, self.windows, number * self.rows, self.rows))

    def one_pass(self) -> Iterator[dict[str, np.ndarray]]:
        """Yield batches of consecutive windows that predict every token but the first exactly once."""
        starts = np.arange(0, len(self.stream) - 1, self.length)
        for first in range(0, len(starts), self.rows):
            rows = np.full(self.rows, len(self.stream))  # rows beyond the end are empty
            chosen = starts[first : first + self.rows]
            rows[: len(chosen)] = chosen
            yield self._read(rows)

    def tokens(self, number: int) -> int:
        """Return how many tokens batch `number` has."""
        return self.rows * self.length

    def shape(self, number: int) -> tuple[int, ...]:
        """Return the shape of batch `number`."""
        return self.rows, self.length

    def first_of_each_shape(self) -> list[int]:
        """Return the number of the first batch of every shape; here there is only one shape."""
        return [0]

    @property
    def batches_per_epoch(self) -> float:
        """Number of batches per epoch."""
        return self.windows / self.rows

    def __str__(self) -> str:
        return (
            f"windows of {self.length:,} tokens, {self.rows:,} a batch, {self.batches_per_epoch:,.1f} batches an epoch"
        )

    def _read(self, starts):
        indices = starts[:, None] + np.arange(self.length)
        real = indices + 1 < len(self.stream)
        inside = np.minimum(indices, len(self.stream) - 2)
        ids, labels = self.stream[inside], self.stream[inside + 1]
        return {
            "ids": np.where(real, ids, 0).astype(np.int32),
            "labels": np.where(real, labels, 0).astype(np.int32),
            "weights": real.astype(np.float32),
        }

    @functools.lru_cache(maxsize=4)  # noqa: B019 - one instance per training run
    def _starts(self, epoch):
        random = random_numbers(self.seed, WINDOWS, epoch)
        spare = len(self.stream) - 1 - self.windows * self.length
        phase = random.integers(min(spare, self.length - 1) + 1)
        return phase + random.permutation(self.windows) * self.length


class PackedDocuments:
    """Next-token examples from documents packed into rows, where they do not attend to each other.

    The input of a document begins with a start token, and its last label is the end token. Documents longer than a row
    are cut into pieces. The longest pieces are placed first, each into the fullest row that still has room. Batch n is
    a pure function of (seed, n).

    Args:
        texts: `EncodedTexts`.
        length: T, tokens per row.
        rows: B, rows per batch.
        seed: seed of the order.
    """

    def __init__(self, texts: EncodedTexts, length: int, rows: int, seed: int = 0):
        self.ids, self.length, self.rows, self.seed = texts.ids, length, rows, seed
        self.pieces = [
            (index, start, min(size - start, length))
            for index, size in enumerate((texts.ids.lengths + 1).tolist())  # the end token counts
            for start in range(0, size, length)
        ]
        sizes = [size for _, _, size in self.pieces]
        self.packed = pack(sizes, length)
        self.filled = sum(sizes) / (len(self.packed) * length)

    def batch(self, number: int) -> dict[str, np.ndarray]:
        """Return batch `number`: ids, labels, weights, segments and positions, each (B, T)."""
        return self._read(self._rows_of(number))

    def one_pass(self) -> Iterator[dict[str, np.ndarray]]:
        """Yield batches that contain every piece exactly once."""
        for first in range(0, len(self.packed), self.rows):
            chosen = list(range(first, min(first + self.rows, len(self.packed))))
            yield self._read(chosen + [None] * (self.rows - len(chosen)))

    def tokens(self, number: int) -> int:
        """Return how many real tokens batch `number` has."""
        return sum(self.pieces[piece][2] for row in self._rows_of(number) for piece in self.packed[row])

    def shape(self, number: int) -> tuple[int, ...]:
        """Return the shape of batch `number`."""
        return self.rows, self.length

    def first_of_each_shape(self) -> list[int]:
        """Return the number of the first batch of every shape; here there is only one shape."""
        return [0]

    @property
    def batches_per_epoch(self) -> float:
        """Number of batches in which every row is seen once."""
        return len(self.packed) / self.rows

    def __str__(self) -> str:
        return (
            f"{len(self.pieces):,} pieces packed into rows of {self.length:,} tokens, {1 - self.filled:.1%} padding, "
            f"{self.rows:,} rows a batch, {self.batches_per_epoch:,.1f} batches an epoch"
        )

    def _rows_of(self, number):
        return cycle(self._order, len(self.packed), number * self.rows, self.rows)

    def _read(self, rows):
        names = ("ids", "labels", "segments", "positions")
        batch = {name: np.zeros((self.rows, self.length), np.int32) for name in names}
        for row, number in enumerate(rows):
            column = 0
            for segment, piece in enumerate(self.packed[number] if number is not None else (), start=1):
                index, start, size = self.pieces[piece]
                document, here = self.ids[index], slice(column, column + size)
                before = document[start - 1] if start else START_ID
                labels = np.append(document[start : start + size], END_ID)[:size]
                batch["ids"][row, here] = np.append(before, labels[:-1])
                batch["labels"][row, here] = labels
                batch["segments"][row, here] = segment
                batch["positions"][row, here] = np.arange(size)
                column += size
        return batch | {"weights": (batch["segments"] > 0).astype(np.float32)}

    @functools.lru_cache(maxsize=4)  # noqa: B019 - one instance per training run
    def _order(self, epoch):
        return random_numbers(self.seed, PACKED_ROWS, epoch).permutation(len(self.packed))
