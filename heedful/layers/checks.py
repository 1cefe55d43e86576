"""Checks of ids whose values are known, for what would otherwise give wrong numbers in silence.

Axes: B batch, T length.
"""

import numpy as np

from heedful import backend
from heedful.backend import Tensor
from heedful.core.special_tokens import PAD_ID


def check_ids(ids: Tensor, words: int, name: str = "ids", *, causal: bool = False) -> None:
    """Raise `ValueError` if ids (B, T) are not those of a vocabulary, or begin with padding that nothing would hide.

    Inside compiled computations ids have no values, and nothing is checked; nor for tensors of PyTorch, which checks
    ids itself, and whose values may be on another device.

    Args:
        ids: integers, of any kind of array; others are not checked.
        words: entries of the vocabulary.
        name: what the ids are called in messages.
        causal: whether each token reads those before it, without a mask for padding.
    """
    ids = _values(ids)
    if ids is None or not ids.size or ids.ndim != 2:
        return
    smallest, largest = ids.min(), ids.max()
    if smallest < 0 or largest >= words:
        wrong = smallest if smallest < 0 else largest
        raise ValueError(
            f"The {name} contain the id {wrong}, but the vocabulary has {words} entries, 0 to {words - 1}."
        )
    begins = (ids[:, 0] == PAD_ID) & (ids != PAD_ID).any(axis=1)
    if causal and begins.any():
        raise ValueError(
            f"Row {begins.argmax()} of the {name} begins with padding (0), which every later token would read: put the "
            'padding at the end, as `keras.utils.pad_sequences(rows, padding="post")` does.'
        )


def check_positions(positions: Tensor, max_length: int) -> None:
    """Raise `ValueError` if concrete positions are not those of a table of `max_length` vectors; see `check_ids`."""
    positions = _values(positions)
    if positions is not None and positions.size and not 0 <= positions.min() <= positions.max() < max_length:
        raise ValueError(f"Positions must be 0 to {max_length - 1}, not {positions.min()} to {positions.max()}.")


def check_labels(labels: Tensor, words: int, ignored: int | None) -> None:
    """Raise `ValueError` if concrete labels (B, T), but `ignored`, are not those of a vocabulary of that many words."""
    labels = _values(labels)
    if labels is None or labels.dtype.kind not in "iu":
        return
    counted = labels if ignored is None else labels[labels != ignored]
    if counted.size and not 0 <= counted.min() <= counted.max() < words:
        wrong = counted.min() if counted.min() < 0 else counted.max()
        raise ValueError(f"The labels contain {wrong}, but the vocabulary has {words} entries, 0 to {words - 1}.")


def _values(array: Tensor) -> np.ndarray | None:
    """Return the values of an array; None if it has none, or belongs to PyTorch."""
    if isinstance(array, np.ndarray):
        return array
    if backend.NAME == "torch" or not hasattr(array, "shape") or not backend.has_values(array):
        return None
    return np.asarray(backend.to_numpy(array))
