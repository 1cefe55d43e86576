"""The best of a vocabulary without sorting it.

Axes: V vocabulary, G groups, M members of a group.
"""

from keras import ops

from heedful import backend

GROUPS = 512  # lanes that are searched side by side; a vocabulary of 8,000 makes groups of 16
MOST_ROUNDS = 32  # from here on a sort is quicker than taking the maximum again and again
NEVER = -1e30  # stands for minus infinity, and survives being added to


def top_k(scores, k):
    """Return the `k` largest of `scores` (..., V) and their places, largest first.

    XLA sorts all of V on a CPU. Here the maximum of each group of V / 512 is taken first; the k best of all lie in
    the k groups with the best maxima, so only those are looked at closely.
    """
    size = scores.shape[-1]
    if backend.NAME != "jax" or k > MOST_ROUNDS or size < 4 * GROUPS:
        values, places = ops.top_k(scores, k)
        return values, ops.cast(places, "int32")
    members = -(-size // GROUPS)
    padding = [(0, 0)] * (len(scores.shape) - 1) + [(0, members * GROUPS - size)]
    scores = ops.pad(scores, padding, constant_values=NEVER)
    table = ops.reshape(scores, (*scores.shape[:-1], members, GROUPS))  # member m of group g stands at m x G + g
    _, groups = _take_maxima(ops.max(table, axis=-2), k)  # (..., k)
    chosen = ops.take_along_axis(table, groups[..., None, :], axis=-1)  # (..., M, k)
    values, places = _take_maxima(ops.reshape(chosen, (*chosen.shape[:-2], members * k)), k)
    group = ops.take_along_axis(groups, places % k, axis=-1)
    return values, (places // k) * GROUPS + group


def _take_maxima(scores, k):
    """Take the maximum of `scores` (..., N), strike it out, and again, `k` times."""
    places = ops.arange(scores.shape[-1], dtype="int32")
    values, found = [], []
    for _ in range(k):
        best = ops.cast(ops.argmax(scores, axis=-1), "int32")[..., None]
        values.append(ops.take_along_axis(scores, best, axis=-1))
        found.append(best)
        scores = ops.where(ops.equal(places, best), 2 * NEVER, scores)
    return ops.concatenate(values, axis=-1), ops.concatenate(found, axis=-1)
