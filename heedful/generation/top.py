"""The best of a vocabulary without sorting it.

Axes: V vocabulary, G groups, M members of a group.
"""

from keras import ops

from heedful import backend

MEMBERS = 16
SMALL = 2048  # from here down a sort is quick enough
NEVER = -1e30  # stands for minus infinity, and survives being added to


def top_k(scores, k):
    """Return the `k` largest of `scores` (..., V) and their places, largest first.

    XLA sorts all of V on a CPU. Here the maximum of each group of 16 is taken first; the k best of all lie in the k
    groups with the best maxima, so only those are looked at closely.
    """
    size = scores.shape[-1]
    groups = size // MEMBERS
    if backend.NAME != "jax" or size <= SMALL or k >= groups:
        values, places = ops.top_k(scores, k)
        return values, ops.cast(places, "int32")
    table, rest = _grouped(scores)
    chosen_groups = top_k(ops.max(table, axis=-2), k)[1]  # (..., k)
    members = ops.take_along_axis(table, chosen_groups[..., None, :], axis=-1)  # (..., M, k)
    candidates = ops.reshape(members, (*members.shape[:-2], MEMBERS * k))
    values, found = top_k(ops.concatenate([candidates, rest], axis=-1), k)
    group = ops.take_along_axis(chosen_groups, found % k, axis=-1)
    places = (found // k) * groups + group
    return values, ops.where(found < MEMBERS * k, places, found + MEMBERS * (groups - k))


def argmax(scores):
    """Return the place of the largest of `scores` (..., V).

    XLA's own argmax compares one by one on a CPU. The maximum of each group first: half the time.
    """
    if backend.NAME != "jax" or scores.shape[-1] <= SMALL:
        return ops.cast(ops.argmax(scores, axis=-1), "int32")
    table, rest = _grouped(scores)
    group = ops.cast(ops.argmax(ops.max(table, axis=-2), axis=-1), "int32")[..., None]  # (..., 1)
    members = ops.take_along_axis(table, group[..., None, :], axis=-1)[..., 0]  # (..., M)
    found = ops.cast(ops.argmax(ops.concatenate([members, rest], axis=-1), axis=-1), "int32")
    groups = table.shape[-1]
    return ops.where(found < MEMBERS, found * groups + group[..., 0], found + MEMBERS * (groups - 1))


def _grouped(scores):
    """Cut (..., V) into (..., M, G), where member m of group g stands at m x G + g, and the fewer than M left over."""
    size = scores.shape[-1]
    groups = size // MEMBERS
    table = ops.reshape(scores[..., : MEMBERS * groups], (*scores.shape[:-1], MEMBERS, groups))
    return table, scores[..., MEMBERS * groups :]
