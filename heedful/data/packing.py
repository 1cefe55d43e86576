"""Packing of texts, or pairs of texts, into rows."""

from collections.abc import Sequence
from typing import Any


def pack(sizes: Sequence[int], room: int, others: Sequence[int] | None = None) -> list[list[int]]:
    """Pack pieces into rows by best-fit decreasing; return the piece indices of each row, rows in order of creation.

    Args:
        sizes: size of each piece, in tokens.
        room: capacity of a row; a larger piece gets a row of its own.
        others: for pairs, the size of each piece on the other side, which also has `room` tokens per row.
    """
    others = sizes if others is None else others
    rows = []
    with_space: dict[Any, Any] = {}  # rows by their free space on both sides
    # Bit s of `spaces` is set if a row has s tokens free; `other_spaces[s]`: the same for the other side.
    spaces, other_spaces = 0, [0] * (room + 1)
    for piece in sorted(range(len(sizes)), key=lambda piece: -max(sizes[piece], others[piece])):
        size, other = sizes[piece], others[piece]
        if max(size, other) > room:
            rows.append([piece])
            continue
        found = _least_space(spaces, other_spaces, size, other)
        if found:
            space, other_space = found
            row = with_space[found].pop()
            if not with_space[found]:
                other_spaces[space] ^= 1 << other_space
                if not other_spaces[space]:
                    spaces ^= 1 << space
        else:
            (space, other_space), row = (room, room), len(rows)
            rows.append([])
        rows[row].append(piece)
        space, other_space = space - size, other_space - other
        if space and other_space:
            with_space.setdefault((space, other_space), []).append(row)
            spaces |= 1 << space
            other_spaces[space] |= 1 << other_space
    return rows


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
