"""Attention, layer norm and relu in JAX with custom gradients, for XLA on a CPU.

JAX's autodiff keeps most intermediates, and XLA reads each of them again. The functions here keep only what the
gradient needs: the attention weights, the normalised vectors, the result of relu. They are also written so that XLA
keeps no other intermediates. docs/performance.md has the measurements.

Axes: B batch, T query length, S key length, N query heads, K key heads, G = N / K, H head size, D d_model.
"""

import functools

import jax
import jax.numpy as jnp

HIDDEN = -1e30  # the score of a hidden key: its weight is exactly 0


@jax.custom_vjp
def attend(query, keys, values, visible):
    """Return values (B, S, K, H) averaged by attention: (B, T, N, H). See `backend.attend`."""
    return _attend(query, keys, values, visible)[0]


def _attend(query, keys, values, visible):
    (batch, length, heads, size), shared = query.shape, keys.shape[2]
    scores = _product(_heads_first(query, shared), _turned(keys, shared), "float32") * size**-0.5
    scores = scores.reshape(batch, heads, length, -1)
    scores = scores if visible is None else jnp.where(visible, scores, HIDDEN)
    weights = jax.nn.softmax(scores).astype(values.dtype)  # (B, N, T, S)
    mixed = _product(_grouped(weights, shared), _heads_first(values, shared), values.dtype)
    return _heads_back(mixed, query.shape), (query, keys, values, weights)


def _attend_backward(kept, upstream):
    query, keys, values, weights = kept
    shared = keys.shape[2]
    by_values = _product(_turned(upstream, shared), _grouped(weights, shared), values.dtype)  # (B, K, H, S)
    by_weights = _product(_heads_first(upstream, shared), _turned(values, shared), "float32").reshape(weights.shape)
    by_scores = weights * (by_weights - jnp.sum(weights * by_weights, axis=-1, keepdims=True))
    by_scores = _grouped((by_scores * query.shape[-1] ** -0.5).astype(query.dtype), shared)
    by_query = _heads_back(_product(by_scores, _heads_first(keys, shared), query.dtype), query.shape)
    by_keys = _product(_turned(query, shared), by_scores, keys.dtype)  # (B, K, H, S)
    return by_query, by_keys.transpose(0, 3, 1, 2), by_values.transpose(0, 3, 1, 2), None


attend.defvjp(_attend, _attend_backward)


def _product(x, y, dtype):
    """Multiply the matrices x (B, K, M, D) and y (B, K, D, U), in the layout that XLA multiplies directly.

    XLA first copies matrices in other layouts. Here this adds no cost: separating the heads copies the operands
    anyway, and the attention weights, the largest, already have this layout.
    """
    return jax.lax.dot_general(x, y, (((3,), (2,)), ((0, 1), (0, 1))), preferred_element_type=dtype)


def _heads_first(x, shared):
    """Reshape (B, T, N, H) to (B, K, G T, H): query heads that share a key head are stacked."""
    batch, length, _, size = x.shape
    return x.reshape(batch, length, shared, -1, size).transpose(0, 2, 3, 1, 4).reshape(batch, shared, -1, size)


def _turned(x, shared):
    """Reshape (B, T, N, H) to (B, K, H, G T)."""
    return jnp.swapaxes(_heads_first(x, shared), 2, 3)


def _heads_back(x, shape):
    """Reshape (B, K, G T, H) back to `shape` (B, T, N, H)."""
    batch, length, _, size = shape
    return x.reshape(batch, x.shape[1], -1, length, size).transpose(0, 3, 1, 2, 4).reshape(shape)


def _grouped(weights, shared):
    """View weights (B, N, T, S) as (B, K, G T, S)."""
    return weights.reshape(weights.shape[0], shared, -1, weights.shape[3])


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def layer_norm(x, gain, shift, epsilon):
    """Return x (B, T, D) normalised; see `backend.layer_norm`."""
    return _layer_norm(x, gain, shift, epsilon)[0]


def _layer_norm(x, gain, shift, epsilon):
    wide = x.astype("float32")
    centred = wide - jnp.mean(wide, axis=-1, keepdims=True)
    inverse = jax.lax.rsqrt(jnp.mean(centred * centred, axis=-1, keepdims=True) + epsilon)  # (B, T, 1)
    inverse = jax.lax.optimization_barrier(inverse)  # else XLA keeps a copy broadcast over D
    normal = centred * inverse
    made = normal * gain if shift is None else normal * gain + shift
    return made.astype(x.dtype), (normal.astype(x.dtype), inverse, gain, shift is None)


def _layer_norm_backward(epsilon, kept, upstream):
    # Products with smaller arrays use flat rows. Otherwise XLA fuses products and sums into one library call, for
    # which it broadcasts the smaller arrays to the size of x, and keeps the copies.
    normal, inverse, gain, no_shift = kept
    flat = (-1, upstream.shape[-1])
    rows = upstream.reshape(flat)
    by_normal = (rows * gain).reshape(upstream.shape)
    along = jnp.mean(by_normal * normal, axis=-1, keepdims=True)
    by_centred = by_normal - jnp.mean(by_normal, axis=-1, keepdims=True) - normal * along
    by_x = (by_centred.reshape(flat) * inverse.reshape(-1, 1)).reshape(upstream.shape)
    by_gain = jnp.sum(rows * normal.reshape(flat), axis=0)
    by_shift = None if no_shift else jnp.sum(rows, axis=0)
    return by_x.astype(upstream.dtype), by_gain, by_shift


layer_norm.defvjp(_layer_norm, _layer_norm_backward)


@jax.custom_vjp
def relu(x):
    """Return max(x, 0)."""
    return _relu(x)[0]


def _relu(x):
    made = jnp.where(x <= 0, 0, x)  # XLA would keep x to recompute a maximum in the backward pass
    return made, made


def _relu_backward(made, upstream):
    return (jnp.where(made <= 0, 0, upstream),)


relu.defvjp(_relu, _relu_backward)
