"""Matrix products with rounded weights, for inference: less memory traffic and faster hardware units.

Axes: M rows, D input width, U units.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from heedful import backend
from heedful.backend import Tensor

PRECISIONS = ("bfloat16", "int8")
_MAX_INT8 = 127  # largest int8 magnitude, symmetric around zero


@keras.saving.register_keras_serializable("heedful")
class RoundingPolicy(keras.DTypePolicy):
    """Dtype policy of layers that store the weights of their matrix products rounded; all else is float32.

    Args:
        precision: `bfloat16` (float32 accumulation), or `int8` (one scale per column of weights and per row of inputs,
            int32 accumulation; Dettmers et al. 2022, section 2).
    """

    def __init__(self, precision: str):
        if precision not in PRECISIONS:
            raise ValueError(f"Weights are rounded to {' or '.join(PRECISIONS)}, not to {precision!r}.")
        super().__init__("float32")
        self.precision = precision

    def get_config(self) -> dict[str, Any]:
        return {"precision": self.precision}


class RoundedKernel:
    """The kernel (D, U) of a layer with a `RoundingPolicy`, stored as weights `NAME_rounded` and `NAME_scales`.

    Args:
        layer: owner of the weights.
        shape: (D, U).
        name: name of the kernel that is rounded.
    """

    def __init__(self, layer: keras.Layer, shape: tuple[int, ...], name: str = "kernel"):
        precision = layer.dtype_policy.precision
        self.values = layer.add_weight(shape, "zeros", precision, trainable=False, name=f"{name}_rounded")
        self.scales = None
        if precision == "int8":
            self.scales = layer.add_weight(shape[1:], "ones", trainable=False, name=f"{name}_scales")

    def multiply(self, x: Tensor) -> Tensor:
        """Return x (M, D) times the kernel: float32 (M, U)."""
        kernel = ops.convert_to_tensor(self.values)
        if self.scales is None:
            return backend.multiply(ops.cast(x, "bfloat16"), kernel)
        largest = ops.max(ops.abs(x), axis=-1, keepdims=True)
        scales = ops.maximum(largest, 1e-30) / _MAX_INT8
        sums = backend.multiply(ops.cast(ops.round(x / scales), "int8"), kernel)
        return ops.cast(sums, "float32") * scales * self.scales


def rounds(layer: keras.Layer) -> bool:
    """Return whether a layer stores the weights of its matrix products rounded."""
    return isinstance(layer.dtype_policy, RoundingPolicy)


def rounded_values(kernel: np.ndarray, precision: str) -> dict[str, np.ndarray]:
    """Return the weights of a `RoundedKernel` for a float32 kernel (D, U), by the suffixes of their names."""
    if precision == "bfloat16":
        return {"rounded": kernel}  # assigning rounds it
    scales = np.maximum(np.abs(kernel).max(axis=0), 1e-30) / _MAX_INT8
    return {"rounded": np.round(kernel / scales).astype(np.int8), "scales": scales.astype(np.float32)}
