"""Packing of texts, or pairs of texts, into rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from heedful.data.ragged import PIECE, Ragged


def pack(sizes: Sequence[int] | np.ndarray, room: int, others: Sequence[int] | np.ndarray | None = None) -> Ragged:
    """Pack pieces into rows by best-fit decreasing; return the piece indices of each row, rows in order of creation.

    Args:
        sizes: size of each piece, in tokens (N,).
        room: capacity of a row; a larger piece gets a row of its own.
        others: for pairs, the size of each piece on the other side, which also has `room` tokens per row (N,).
    """
    sizes = np.asarray(sizes, np.int32)
    others = sizes if others is None else np.asarray(others, np.int32)
    order = np.argsort(-np.maximum(sizes, others), kind="stable").astype(np.int32)
    row_of = np.empty(len(sizes), np.int32)  # of the pieces in this order
    rows = _Rows(room)
    for start in range(0, len(order), PIECE):  # Python numbers take much memory
        chosen = order[start : start + PIECE]
        pairs = zip(sizes[chosen].tolist(), others[chosen].tolist(), strict=True)
        row_of[start : start + PIECE] = [rows.place(size, other) for size, other in pairs]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(row_of, minlength=rows.count))])
    return Ragged(order[np.argsort(row_of, kind="stable")], offsets)


class _Rows:
    """Rows that are being filled."""

    def __init__(self, room):
        self.room, self.count = room, 0
        self.with_space: dict[Any, list[int]] = {}  # rows by their free space on both sides
        # Bit s of `spaces` is set if a row has s tokens free; `other_spaces[s]`: the same for the other side.
        self.spaces, self.other_spaces = 0, [0] * (room + 1)

    def place(self, size, other):
        """Return the number of the row that a piece is added to: the fullest one with enough space, or a new one."""
        if max(size, other) > self.room:
            return self._new()
        number = _least_space(self.spaces, self.other_spaces, size, other)
        if number:
            space, other_space = number
            row = self.with_space[number].pop()
            if not self.with_space[number]:
                self.other_spaces[space] ^= 1 << other_space
                if not self.other_spaces[space]:
                    self.spaces ^= 1 << space
        else:
            (space, other_space), row = (self.room, self.room), self._new()
        space, other_space = space - size, other_space - other
        if space and other_space:
            self.with_space.setdefault((space, other_space), []).append(row)
            self.spaces |= 1 << space
            self.other_spaces[space] |= 1 << other_space
        return row

    def _new(self):
        self.count += 1
        return self.count - 1


def _least_space(spaces, other_spaces, size, other):
    """Return the smallest sufficient free space of a row as (first side, other side), or None."""
    space, left = size, spaces >> size
    while left:
        skipped = _lowest_bit(left)
        space, left = space + skipped, left >> skipped
        if enough := other_spaces[space] >> other:
            return space, other + _lowest_bit(enough)
        space, left = space + 1, left >> 1
    return None


def _lowest_bit(number):
    return (number & -number).bit_length() - 1
