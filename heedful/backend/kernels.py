"""Attention, norms and relu in the fastest form for each backend.

Axes: B batch, T query length, S key length, N query heads, K key heads, H head size, D d_model.
"""

from typing import Literal

import keras
from keras import ops

from heedful.backend.devices import NAME, has_fused_attention, jax_on_cpu
from heedful.backend.tensors import Tensor

if NAME == "jax":
    from heedful.backend import xla_gradients
elif NAME == "torch":
    import torch

LARGEST_FUSED_HEAD = 128  # largest head size that cuDNN's fused attention accepts on every GPU that supports it


def attend(query: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None = None) -> Tensor:
    """Return scaled dot-product attention (Vaswani et al. 2017, section 3.2.1).

    JAX on accelerators, torch and TensorFlow use the attention of the library, which may be fused. JAX on a CPU uses a
    custom gradient, see `xla_gradients`.

    Args:
        query: (B, T, N, H).
        keys, values: (B, S, K, H); each key head serves N / K query heads.
        visible: boolean, broadcastable to (B, N, T, S), or None.

    Returns:
        The mixed values (B, T, N, H).
    """
    if jax_on_cpu():
        return xla_gradients.attend(query, keys, values, visible)
    if NAME == "jax":
        return _attend_on_accelerator(query, keys, values, visible)
    if keys.shape[2] == 1 and NAME == "tensorflow":  # Keras repeats several key heads there, but not one
        keys, values = (ops.repeat(x, query.shape[2], axis=2) for x in (keys, values))
    return ops.dot_product_attention(query, keys, values, mask=visible)


def _attend_on_accelerator(query, keys, values, visible):
    """Compute `attend` with JAX's own function, by cuDNN's fused kernel where that applies.

    Keras would try cuDNN's kernel for every mask, and log each failure.
    """
    import jax

    mask = None
    if visible is not None:
        shape = (1,) * (4 - len(visible.shape)) + tuple(visible.shape)
        lengths = query.shape[1], keys.shape[1]
        mask = ops.broadcast_to(ops.reshape(visible, shape), (*shape[:2], *lengths))
    implementation: Literal["cudnn", "xla"] = "cudnn" if _fits_cudnn(query, keys, visible) else "xla"
    return jax.nn.dot_product_attention(query, keys, values, mask=mask, implementation=implementation)


def _fits_cudnn(query, keys, visible):
    """Return whether cuDNN's fused attention computes this: 16 bits, small heads, and even lengths under a mask."""
    (_, length, _, size), key_length = query.shape, keys.shape[1]
    even = visible is None or (length % 2 == 0 and key_length % 2 == 0)
    sixteen_bits = keras.backend.standardize_dtype(query.dtype) in ("bfloat16", "float16")
    return sixteen_bits and size % 8 == 0 and size <= LARGEST_FUSED_HEAD and even and has_fused_attention()


def layer_norm(x: Tensor, gain: Tensor, shift: Tensor | None, epsilon: float) -> Tensor:
    """Normalise each vector of x (B, T, D) to mean 0 and variance 1, then scale and shift it (Ba et al. 2016).

    Means are computed in at least float32. JAX on a CPU uses a custom gradient, as in `attend`.

    Args:
        x: (B, T, D).
        gain: (D,).
        shift: (D,), or None.
        epsilon: added to the variance.

    Returns:
        (B, T, D), in the dtype of x.
    """
    if jax_on_cpu():
        weights = (None if y is None else ops.convert_to_tensor(y) for y in (gain, shift))
        return xla_gradients.layer_norm(x, *weights, epsilon)
    if NAME == "torch":  # Keras would take the size of the axis from x, where an export does not know it
        wide = ops.cast(x, keras.backend.result_type(x.dtype, "float32"))
        gain, shift = (None if y is None else ops.convert_to_tensor(y, wide.dtype) for y in (gain, shift))
        normal = torch.nn.functional.layer_norm(wide, tuple(gain.shape), gain, shift, epsilon)
    else:
        normal = ops.layer_normalization(x, gain, shift, axis=-1, epsilon=epsilon)
    return ops.cast(normal, keras.backend.standardize_dtype(x.dtype))


def rms_norm(x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
    """Divide each vector of x by its root mean square, then scale it (Zhang and Sennrich 2019).

    Means are computed in at least float32. JAX on a CPU uses a custom gradient, as in `attend`.

    Args:
        x: (..., D).
        gain: (D,).
        epsilon: added to the mean square.

    Returns:
        (..., D), in the dtype of x.
    """
    if jax_on_cpu():
        return xla_gradients.rms_norm(x, ops.convert_to_tensor(gain), epsilon)
    wide = ops.cast(x, keras.backend.result_type(x.dtype, "float32"))
    mean_square = ops.mean(ops.square(wide), axis=-1, keepdims=True)
    normal = wide * ops.rsqrt(mean_square + epsilon) * ops.cast(gain, wide.dtype)
    return ops.cast(normal, keras.backend.standardize_dtype(x.dtype))


def relu(x: Tensor) -> Tensor:
    """Return max(x, 0). JAX on a CPU uses a custom gradient, as in `attend`."""
    return xla_gradients.relu(x) if jax_on_cpu() else ops.relu(x)
