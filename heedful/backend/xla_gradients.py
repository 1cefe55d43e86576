"""Attention, norms and relu in JAX with custom gradients, for XLA on a CPU.

JAX's autodiff keeps most intermediates, and XLA reads each of them again. The functions here keep only what the
gradient needs: the attention weights, the normalised vectors, the result of relu. They are also written so that XLA
keeps no other intermediates. docs/performance.md has the measurements.

Axes: B batch, T query length, S key length, N query heads, K key heads, G = N / K, H head size, D d_model.
"""

import functools

import jax
import jax.numpy as jnp

from heedful.backend.tensors import HIDDEN_SCORE, Tensor


@jax.custom_vjp
def attend(query: Tensor, keys: Tensor, values: Tensor, visible: Tensor) -> Tensor:
    """Return values (B, S, K, H) averaged by attention: (B, T, N, H). See `backend.attend`."""
    return _attend(query, keys, values, visible)[0]


def _attend(query, keys, values, visible):
    (batch, length, heads, size), kv_heads = query.shape, keys.shape[2]
    scores = _product(_heads_first(query, kv_heads), _transposed(keys, kv_heads), "float32") * size**-0.5
    scores = scores.reshape(batch, heads, length, keys.shape[1])
    scores = scores if visible is None else jnp.where(visible, scores, HIDDEN_SCORE)
    weights = jax.nn.softmax(scores).astype(values.dtype)  # (B, N, T, S)
    mixed = _product(_grouped(weights, kv_heads), _heads_first(values, kv_heads), values.dtype)
    return _heads_back(mixed, query.shape), (query, keys, values, weights)


def _attend_backward(residuals, upstream):
    query, keys, values, weights = residuals
    kv_heads = keys.shape[2]
    grad_values = _product(_transposed(upstream, kv_heads), _grouped(weights, kv_heads), values.dtype)  # (B, K, H, S)
    grad_weights = _product(_heads_first(upstream, kv_heads), _transposed(values, kv_heads), "float32").reshape(
        weights.shape
    )
    grad_scores = weights * (grad_weights - jnp.sum(weights * grad_weights, axis=-1, keepdims=True))
    grad_scores = _grouped((grad_scores * query.shape[-1] ** -0.5).astype(query.dtype), kv_heads)
    grad_query = _heads_back(_product(grad_scores, _heads_first(keys, kv_heads), query.dtype), query.shape)
    grad_keys = _product(_transposed(query, kv_heads), grad_scores, keys.dtype)  # (B, K, H, S)
    return grad_query, grad_keys.transpose(0, 3, 1, 2), grad_values.transpose(0, 3, 1, 2), None


attend.defvjp(_attend, _attend_backward)


def _product(x, y, dtype):
    """Multiply the matrices x (B, K, M, D) and y (B, K, D, U), in the layout that XLA multiplies directly.

    XLA first copies matrices in other layouts. Here this adds no cost: separating the heads copies the operands
    anyway, and the attention weights, the largest, already have this layout.
    """
    return jax.lax.dot_general(x, y, (((3,), (2,)), ((0, 1), (0, 1))), preferred_element_type=dtype)


def _heads_first(x, kv_heads):
    """Reshape (B, T, N, H) to (B, K, G T, H): query heads that share a key head are stacked."""
    batch, length, heads, size = x.shape
    groups = heads // kv_heads
    x = x.reshape(batch, length, kv_heads, groups, size).transpose(0, 2, 3, 1, 4)
    return x.reshape(batch, kv_heads, groups * length, size)


def _transposed(x, kv_heads):
    """Reshape (B, T, N, H) to (B, K, H, G T)."""
    return jnp.swapaxes(_heads_first(x, kv_heads), 2, 3)


def _heads_back(x, shape):
    """Reshape (B, K, G T, H) back to `shape` (B, T, N, H)."""
    batch, length, heads, size = shape
    x = x.reshape(batch, x.shape[1], heads // x.shape[1], length, size)
    return x.transpose(0, 3, 1, 2, 4).reshape(shape)


def _grouped(weights, kv_heads):
    """View weights (B, N, T, S) as (B, K, G T, S)."""
    batch, heads, length, places = weights.shape
    return weights.reshape(batch, kv_heads, heads // kv_heads * length, places)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def layer_norm(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    """Return x (B, T, D) normalised; see `backend.layer_norm`."""
    return _layer_norm(x, gain, shift, epsilon)[0]


def _layer_norm(x, gain, shift, epsilon):
    x32 = x.astype("float32")
    centred = x32 - jnp.mean(x32, axis=-1, keepdims=True)
    inverse = jax.lax.rsqrt(jnp.mean(centred * centred, axis=-1, keepdims=True) + epsilon)  # (B, T, 1)
    inverse = jax.lax.optimization_barrier(inverse)  # else XLA keeps a copy broadcast over D
    normal = centred * inverse
    result = normal * gain if shift is None else normal * gain + shift
    return result.astype(x.dtype), (normal.astype(x.dtype), inverse, gain, shift is None)


def _layer_norm_backward(epsilon, residuals, upstream):
    # Products with smaller arrays use flat rows. Otherwise XLA fuses products and sums into one library call, for
    # which it broadcasts the smaller arrays to the size of x, and keeps the copies.
    normal, inverse, gain, no_shift = residuals
    flat = (-1, upstream.shape[-1])
    rows = upstream.reshape(flat)
    grad_normal = (rows * gain).reshape(upstream.shape)
    mean_product = jnp.mean(grad_normal * normal, axis=-1, keepdims=True)
    grad_centred = grad_normal - jnp.mean(grad_normal, axis=-1, keepdims=True) - normal * mean_product
    grad_x = (grad_centred.reshape(flat) * inverse.reshape(-1, 1)).reshape(upstream.shape)
    grad_gain = jnp.sum(rows * normal.reshape(flat), axis=0)
    grad_shift = None if no_shift else jnp.sum(rows, axis=0)
    return grad_x.astype(upstream.dtype), grad_gain, grad_shift


layer_norm.defvjp(_layer_norm, _layer_norm_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def rms_norm(x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
    """Return x (..., D) divided by its root mean square; see `backend.rms_norm`."""
    return _rms_norm(x, gain, epsilon)[0]


def _rms_norm(x, gain, epsilon):
    x32 = x.astype("float32")
    inverse = jax.lax.rsqrt(_means(x32 * x32) + epsilon)
    inverse = jax.lax.optimization_barrier(inverse)  # else XLA keeps a copy broadcast over D
    normal = x32 * inverse
    return (normal * gain).astype(x.dtype), (normal.astype(x.dtype), inverse, gain)


def _rms_norm_backward(epsilon, residuals, upstream):
    normal, inverse, gain = residuals
    normal, upstream32 = normal.astype("float32"), upstream.astype("float32")
    grad_normal = upstream32 * gain
    grad_x = (grad_normal - normal * _means(grad_normal * normal)) * inverse
    rows = (upstream32 * normal).reshape(-1, gain.shape[0])
    grad_gain = (jnp.ones((1, rows.shape[0]), rows.dtype) @ rows)[0]
    return grad_x.astype(upstream.dtype), grad_gain.astype(gain.dtype)


def _means(x):
    """Return the means (..., 1) over the last axis; XLA's library for products is faster than its sums."""
    rows = x.reshape(-1, x.shape[-1])
    return (rows @ jnp.full((x.shape[-1], 1), 1 / x.shape[-1], x.dtype)).reshape(*x.shape[:-1], 1)


rms_norm.defvjp(_rms_norm, _rms_norm_backward)


@jax.custom_vjp
def relu(x: Tensor) -> Tensor:
    """Return max(x, 0)."""
    return _relu(x)[0]


def _relu(x):
    result = jnp.where(x <= 0, 0, x)  # XLA would keep x to recompute a maximum in the backward pass
    return result, result


def _relu_backward(result, upstream):
    return (jnp.where(result <= 0, 0, upstream),)


relu.defvjp(_relu, _relu_backward)
