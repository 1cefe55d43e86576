"""Which texts, or pairs of texts, share a row."""

from typing import Any


def pack(sizes, room, others=None):
    """Put pieces into as few rows as best-fit-decreasing finds: lists of their indices, rows in order of their making.

    Args:
        sizes: of each piece, in tokens.
        room: of a row; a larger piece gets a row of its own.
        others: sizes of each piece's other side, of which a row holds `room` too.
    """
    others = sizes if others is None else others
    rows = []
    with_space: dict[Any, Any] = {}  # rows by the space that they have left on both sides
    spaces, other_spaces = 0, [0] * (room + 1)  # bit s is set where some row has space s; by that, those of the other
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
    """Return the least space of some row, on both sides, that is enough, or None; the first side is looked at first."""
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
