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
    if not isinstance(ids, np.ndarray):
        if backend.NAME == "torch" or not hasattr(ids, "shape") or not backend.has_values(ids):
            return
        ids = backend.to_numpy(ids)
    if not ids.size or ids.ndim != 2:
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
