"""Attention masks. True means that the query may attend to the key.

Axes: B batch, T query length, S key length. `valid` (B, S) is True at real tokens, False at padding.
"""

from collections.abc import Sequence

import keras
from keras import ops

from heedful.backend import Tensor

MEANING = "True where a query may attend to a key, False where it must not"


def padding(valid: Tensor) -> Tensor:
    """Hide padded keys: (B, S) -> (B, 1, 1, S). Keys may also depend on the query: (B, T, S) -> (B, 1, T, S).

    A row without any valid key may attend everywhere: its output is unused, but a softmax over no keys would be NaN.

    >>> ops.convert_to_numpy(padding([[True, False], [False, False]]))[:, 0, 0].tolist()
    [[True, False], [True, True]]
    """
    valid = ops.cast(valid, "bool")
    empty = ops.logical_not(ops.any(valid, axis=-1, keepdims=True))
    visible = ops.logical_or(valid, empty)
    return visible[:, None, None, :] if len(visible.shape) == 2 else visible[:, None]


def same_segment(segments: Tensor, key_segments: Tensor | None = None) -> Tensor:
    """Hide keys of other segments: segment numbers of the queries (B, T) and of the keys (B, S) -> (B, 1, T, S).

    Without `key_segments` the keys have the segments of the queries.

    >>> ops.convert_to_numpy(same_segment(ops.array([[1, 1, 2]])))[0, 0].tolist()
    [[True, True, False], [True, True, False], [False, False, True]]
    """
    key_segments = segments if key_segments is None else key_segments
    return ops.equal(segments[:, :, None], key_segments[:, None, :])[:, None]


def causal(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """Hide keys that come after the query: (T,), (S,) -> (1, 1, T, S).

    >>> ops.convert_to_numpy(causal(ops.arange(2), ops.arange(3)))[0, 0].tolist()
    [[True, False, False], [True, True, False]]
    """
    return (key_positions[None, :] <= query_positions[:, None])[None, None]


def checked(visible: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return an attention mask with the axes (B, N, T, S), each of which may have size 1.

    Args:
        visible: boolean, broadcastable to (B, N, T, S), or (B, T, S) as for `keras.layers.MultiHeadAttention`.
        sizes: (B, N, T, S); None where a size is not known.

    Raises:
        ValueError: the mask is not boolean, or its shape does not fit.
    """
    if not hasattr(visible, "dtype"):
        visible = ops.convert_to_tensor(visible)
    kind = keras.backend.standardize_dtype(visible.dtype)
    if kind != "bool":
        raise ValueError(
            f"An attention mask must be boolean, {MEANING}; this one is {kind}. Pass `mask == 0` if it is 0 at visible "
            "keys (a mask of 1 at padding, or one that is added to the scores), `mask == 1` if it is 1 there."
        )
    shape = tuple(visible.shape)
    four = (shape[0], 1, *shape[1:]) if len(shape) == 3 else shape
    if len(four) != 4 or any(
        None not in (one, size) and one not in (1, size) for one, size in zip(four, sizes, strict=True)
    ):
        raise ValueError(
            f"An attention mask of shape {shape} does not fit: it must be broadcastable to (batch, heads, queries, "
            f"keys), here {tuple(sizes)}, or be (batch, queries, keys). Of a mask (batch, keys) pass "
            "`mask[:, None, None, :]`."
        )
    return visible[:, None] if len(shape) == 3 else visible
