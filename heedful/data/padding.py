"""Texts as one array of ids, padded and cut to a common length.

Axes: B texts, T length.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from heedful.core.errors import InputError
from heedful.core.special_tokens import PAD_ID

Padding = Literal["longest", "max_length"]


def padded_batch(
    rows: Sequence[Sequence[int]], max_length: int | None, padding: Padding, truncation: bool, ends: int = 0
) -> dict[str, np.ndarray]:
    """Return rows of ids as arrays `ids` and `attention_mask` (1 at real tokens), int32 (B, T).

    Args:
        rows: the ids of each text.
        max_length: largest T; None: no limit.
        padding: whether T is the length of the longest row, or `max_length`.
        truncation: whether to cut longer rows; otherwise they are an error.
        ends: number of ids at the end of each row that are kept when it is cut, such as the end token.

    Raises:
        InputError: a row is too long, or `padding` needs a `max_length`.
    """
    if padding not in ("longest", "max_length"):
        raise InputError(f"Unknown padding {padding!r}: choose 'longest' or 'max_length'.")
    if padding == "max_length" and max_length is None:
        raise InputError("padding = 'max_length' needs a max_length.")
    if max_length is not None:
        for number, row in enumerate(rows, 1):
            if len(row) > max_length and not truncation:
                raise InputError(
                    f"Text {number} has {len(row)} tokens; max_length is {max_length}. Shorten it or set truncation."
                )
        rows = [row if len(row) <= max_length else cut(row, max_length, ends) for row in rows]
    length = max_length if padding == "max_length" and max_length else max(map(len, rows), default=0)
    ids = np.full((len(rows), length), PAD_ID, np.int32)
    mask = np.zeros_like(ids)
    for place, numbers in enumerate(rows):
        ids[place, : len(numbers)] = numbers
        mask[place, : len(numbers)] = 1
    return {"ids": ids, "attention_mask": mask}


def cut(row: Sequence[int], length: int, ends: int) -> list[int]:
    """Return the first `length` ids of a row, of which the last `ends` are those at its end."""
    ends = min(ends, length)
    return [*row[: length - ends], *row[len(row) - ends :]]
