"""Products with rounded weights, for models that learn no more: less to read from memory, and faster units to use.

Axes: M rows, D input width, U units.
"""

import keras
import numpy as np
from keras import ops

from heedful import backend

PRECISIONS = ("bfloat16", "int8")
_MOST = 127  # of int8, the same on both sides of zero


@keras.saving.register_keras_serializable("heedful")
class RoundingPolicy(keras.DTypePolicy):
    """Tells layers to keep the weights of their products rounded; all else stays float32.

    Args:
        precision: `bfloat16` (sums in float32), or `int8` (each column of weights and each row of inputs with a scale
            of its own, sums in int32; Dettmers et al. 2022, section 2).
    """

    def __init__(self, precision):
        if precision not in PRECISIONS:
            raise ValueError(f"Weights are rounded to {' or '.join(PRECISIONS)}, not to {precision!r}.")
        super().__init__("float32")
        self.precision = precision

    def get_config(self):
        return {"precision": self.precision}


class RoundedKernel:
    """A kernel (D, U) of a layer whose policy is a `RoundingPolicy`: the weights `NAME_rounded` and `NAME_scales`.

    Args:
        layer: that keeps the weights.
        shape: (D, U).
        name: of the kernel that is rounded.
    """

    def __init__(self, layer, shape, name="kernel"):
        precision = layer.dtype_policy.precision
        self.values = layer.add_weight(shape, "zeros", precision, trainable=False, name=f"{name}_rounded")
        self.scales = None
        if precision == "int8":
            self.scales = layer.add_weight(shape[1:], "ones", trainable=False, name=f"{name}_scales")

    def multiply(self, x):
        """Return x (M, D) times the kernel: float32 (M, U)."""
        kernel = ops.convert_to_tensor(self.values)
        if self.scales is None:
            return backend.multiply(ops.cast(x, "bfloat16"), kernel)
        largest = ops.max(ops.abs(x), axis=-1, keepdims=True)
        scales = ops.maximum(largest, 1e-30) / _MOST
        sums = backend.multiply(ops.cast(ops.round(x / scales), "int8"), kernel)
        return ops.cast(sums, "float32") * scales * self.scales


def rounds(layer):
    """Whether a layer is to keep the weights of its products rounded."""
    return isinstance(layer.dtype_policy, RoundingPolicy)


def rounded_values(kernel, precision):
    """Return a float32 kernel (D, U) as what the weights of a `RoundedKernel` hold, by the end of their names."""
    if precision == "bfloat16":
        return {"rounded": kernel}  # assigning rounds it
    scales = np.maximum(np.abs(kernel).max(axis=0), 1e-30) / _MOST
    return {"rounded": np.round(kernel / scales).astype(np.int8), "scales": scales.astype(np.float32)}
