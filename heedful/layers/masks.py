"""Attention masks. True means that the query may attend to the key.

Axes: B batch, T query length, S key length. `valid` (B, S) is True at real tokens, False at padding.
"""

from keras import ops


def padding(valid):
    """Hide padded keys: (B, S) -> (B, 1, 1, S).

    A row of padding only may attend everywhere: its output is unused, but a softmax over no keys would be NaN.

    >>> ops.convert_to_numpy(padding([[True, False], [False, False]]))[:, 0, 0].tolist()
    [[True, False], [True, True]]
    """
    valid = ops.cast(valid, "bool")
    empty = ops.logical_not(ops.any(valid, axis=-1, keepdims=True))
    return ops.logical_or(valid, empty)[:, None, None, :]


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
