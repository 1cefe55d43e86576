"""Attention, layer norm and relu, as each backend makes them fastest.

Axes: B batch, T query length, S key length, N query heads, K key heads, H head size, D d_model.
"""

import keras
from keras import ops

from heedful.backend.hardware import NAME, jax_on_cpu

if NAME == "jax":
    from heedful.backend import xla_gradients


def attend(query, keys, values, visible=None):
    """Let each query read values by how well it goes with their keys (Vaswani et al. 2017, section 3.2.1).

    On a GPU, on torch and on TensorFlow that is the library's own function, a fused kernel where there is one. On JAX
    on a CPU it has a gradient of its own: see `xla_gradients`.

    Args:
        query: (B, T, N, H).
        keys, values: (B, S, K, H); each key head serves N / K query heads.
        visible: boolean, broadcastable to (B, N, T, S), or None.

    Returns:
        What each query gets (B, T, N, H).
    """
    if jax_on_cpu():
        return xla_gradients.attend(query, keys, values, visible)
    if keys.shape[2] == 1 and NAME == "tensorflow":  # whose kernel refuses a single shared head
        keys, values = (ops.repeat(x, query.shape[2], axis=2) for x in (keys, values))
    return ops.dot_product_attention(query, keys, values, mask=visible)


def layer_norm(x, gain, shift, epsilon):
    """Bring each vector of x (B, T, D) to mean 0 and variance 1, then scale and move it (Ba et al. 2016).

    Means are taken in float32 at least. On JAX on a CPU with a gradient of its own, as `attend`.

    Args:
        x: (B, T, D).
        gain: (D,).
        shift: (D,), or None.
        epsilon: added to the variance.

    Returns:
        (B, T, D), of the type of x.
    """
    if jax_on_cpu():
        weights = (None if y is None else ops.convert_to_tensor(y) for y in (gain, shift))
        return xla_gradients.layer_norm(x, *weights, epsilon)
    normal = ops.layer_normalization(x, gain, shift, axis=-1, epsilon=epsilon)
    return ops.cast(normal, keras.backend.standardize_dtype(x.dtype))


def relu(x):
    """Return what is positive of x, elsewhere 0; on JAX on a CPU with a gradient of its own, as `attend`."""
    return xla_gradients.relu(x) if jax_on_cpu() else ops.relu(x)
