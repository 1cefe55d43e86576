"""Top-k, argmax and logsumexp over a vocabulary, in forms that XLA compiles well for CPUs.

On CPUs, XLA sorts a whole row to find its top k, and reduces rows in small pieces, but columns with vector
instructions. The vocabulary is therefore split into groups, the columns of a table, and each function reduces the
groups first.

Axes: V vocabulary, G groups, M members of a group.
"""

from typing import Any

from keras import ops

from heedful import backend
from heedful.backend import Tensor

MEMBERS = 16
SMALL = 2048  # vocabularies up to this size are not grouped
MINUS_INFINITY = -1e30  # a finite stand-in: infinities would give NaN in sums


def top_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the `k` largest of `scores` (..., V) and their indices, largest first; ties are in no fixed order.

    The k largest lie in the k groups with the largest maxima, so only those groups are searched.
    """
    size = scores.shape[-1]
    groups = size // MEMBERS
    if backend.NAME != "jax" or size <= SMALL or k >= groups:
        values, places = backend.fusion_barrier(ops.top_k(scores, k))
        return values, ops.cast(places, "int32")
    table, rest = _grouped(scores)
    chosen_groups = top_k(ops.max(table, axis=-2), k)[1]  # (..., k)
    members = ops.take_along_axis(table, chosen_groups[..., None, :], axis=-1)  # (..., M, k)
    candidates = ops.reshape(members, (*members.shape[:-2], MEMBERS * k))
    values, indices = top_k(ops.concatenate([candidates, rest], axis=-1), k)
    group = ops.take_along_axis(chosen_groups, indices % k, axis=-1)
    places = (indices // k) * groups + group
    return values, ops.where(indices < MEMBERS * k, places, indices + MEMBERS * (groups - k))


def argmax(scores: Tensor) -> Tensor:
    """Return the index of the largest of `scores` (..., V)."""
    if backend.NAME != "jax" or scores.shape[-1] <= SMALL:
        return ops.cast(ops.argmax(scores, axis=-1), "int32")
    table, rest = _grouped(scores)
    group = ops.cast(ops.argmax(ops.max(table, axis=-2), axis=-1), "int32")[..., None]  # (..., 1)
    members = ops.take_along_axis(table, group[..., None, :], axis=-1)[..., 0]  # (..., M)
    member = ops.cast(ops.argmax(ops.concatenate([members, rest], axis=-1), axis=-1), "int32")
    groups = table.shape[-1]
    return ops.where(member < MEMBERS, member * groups + group[..., 0], member + MEMBERS * (groups - 1))


def log_normaliser(logits: Tensor) -> Tensor:
    """Return the logarithm of the sum of exponentials of `logits` (..., V)."""
    if backend.NAME != "jax" or logits.shape[-1] <= SMALL:
        return ops.logsumexp(logits, axis=-1)
    table, rest = _grouped(logits)
    best = backend.fusion_barrier(ops.max(table, axis=-2))
    top = ops.max(ops.concatenate([best, rest], axis=-1), axis=-1, keepdims=True)
    sums = backend.fusion_barrier(ops.sum(ops.exp(table - top[..., None, :]), axis=-2))
    return top[..., 0] + ops.log(ops.sum(ops.concatenate([sums, ops.exp(rest - top)], axis=-1), axis=-1))


def _grouped(scores: Tensor) -> Any:
    """Split (..., V) into a table (..., M, G), with entry m x G + g at (m, g), and a rest of fewer than M entries."""
    size = scores.shape[-1]
    groups = size // MEMBERS
    table = ops.reshape(scores[..., : MEMBERS * groups], (*scores.shape[:-1], MEMBERS, groups))
    return table, scores[..., MEMBERS * groups :]
