"""Attention masks. True means that the query may attend to the key.

Axes: B batch, T query length, S key length. `valid` (B, S) is True at real tokens, False at padding.
"""

from keras import ops


def padding(valid):
    """Hide padded keys: (B, S) -> (B, 1, 1, S). Keys may also depend on the query: (B, T, S) -> (B, 1, T, S).

    A row without any valid key may attend everywhere: its output is unused, but a softmax over no keys would be NaN.

    >>> ops.convert_to_numpy(padding([[True, False], [False, False]]))[:, 0, 0].tolist()
    [[True, False], [True, True]]
    """
    valid = ops.cast(valid, "bool")
    empty = ops.logical_not(ops.any(valid, axis=-1, keepdims=True))
    visible = ops.logical_or(valid, empty)
    return visible[:, None, None, :] if len(visible.shape) == 2 else visible[:, None]


def same_segment(segments, key_segments=None):
    """Hide keys of other segments: segment numbers of the queries (B, T) and of the keys (B, S) -> (B, 1, T, S).

    Without `key_segments` the keys have the segments of the queries.

    >>> ops.convert_to_numpy(same_segment(ops.array([[1, 1, 2]])))[0, 0].tolist()
    [[True, True, False], [True, True, False], [False, False, True]]
    """
    key_segments = segments if key_segments is None else key_segments
    return ops.equal(segments[:, :, None], key_segments[:, None, :])[:, None]


def causal(query_positions, key_positions):
    """Hide keys that come after the query: (T,), (S,) -> (1, 1, T, S).

    >>> ops.convert_to_numpy(causal(ops.arange(2), ops.arange(3)))[0, 0].tolist()
    [[True, False, False], [True, True, False]]
    """
    return (key_positions[None, :] <= query_positions[:, None])[None, None]


def check_agreement(visible, mask):
    """Raise `ValueError` if an attention mask (B, N, T, S) and the Keras mask that it replaces differ in B or S.

    Axes of size 1 in `visible` and axes of unknown size fit any size. `mask` is (B, S), (B, T, S) or None.
    """
    if mask is None:
        return
    fits = all(
        None in (one, other) or one in (1, other)
        for one, other in ((visible.shape[0], mask.shape[0]), (visible.shape[-1], mask.shape[-1]))
    )
    if not fits:
        raise ValueError(
            f"`visible` has the shape {tuple(visible.shape)}, which does not fit the Keras mask of the keys, "
            f"{tuple(mask.shape)}: it must be broadcastable to (batch, heads, queries, keys)."
        )
