"""Hashing of short sequences of numbers, such as letters or words, to places in a table; collisions can occur."""

from typing import Any

import numpy as np

_FACTORS = tuple(map(np.uint32, (2654435761, 2246822519, 3266489917)))  # odd, and without a pattern in their bits
_LAST = np.uint32(668265263)


def places(bits: int, *numbers: np.ndarray) -> np.ndarray:
    """Hash up to three arrays of numbers, broadcast together, to places in a table of 2^bits entries (uint32)."""
    mixed: Any = sum(array.astype(np.uint32) * factor for array, factor in zip(numbers, _FACTORS, strict=False))
    mixed = mixed ^ (mixed >> np.uint32(15))
    return (mixed * _LAST) >> np.uint32(32 - bits)
