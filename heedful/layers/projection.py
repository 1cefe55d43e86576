"""The matrix product that all other layers use.

Axes: B batch, T length, D input width, U units.
"""

from typing import Any

import keras
from keras import ops

from heedful import backend
from heedful.backend import Shape, Tensor
from heedful.layers.initial_values import LoadableLayer
from heedful.layers.rounding import RoundedKernel, rounds


@keras.saving.register_keras_serializable("heedful")
class Projection(LoadableLayer, keras.layers.Dense):
    """A Dense layer that flattens its input (B, T, D) to (B T, D) before it multiplies by the kernel.

    The result equals that of Dense. The kernel's gradient then sums over one axis, not two, so XLA compiles a plain
    matrix product on CPUs.
    """

    rounded = None  # the `RoundedKernel` that replaces the kernel under a `RoundingPolicy`

    def build(self, input_shape: Shape) -> None:
        if not rounds(self):
            super().build(input_shape)
            return
        self.rounded = RoundedKernel(self, (input_shape[-1], self.units))
        self.bias = self.add_weight((self.units,), "zeros", trainable=False, name="bias") if self.use_bias else None
        self.built = True

    def call(self, inputs: Tensor) -> Tensor:
        shape = ops.shape(inputs)
        flat = ops.reshape(inputs, (-1, inputs.shape[-1]))
        if self.rounded is None:
            flat = backend.affine(flat, self.kernel, self.bias)
        else:
            flat = self.rounded.multiply(flat)
            flat = flat if self.bias is None else flat + self.bias
        return ops.reshape(self.activation(flat), (*shape[:-1], self.units))

    def save_own_variables(self, store: Any) -> None:
        """Save the weights; `Dense` would look for its own kernel, which a rounded layer lacks."""
        if self.rounded is None:
            super().save_own_variables(store)
        else:
            keras.layers.Layer.save_own_variables(self, store)

    def load_own_variables(self, store: Any) -> None:
        if self.rounded is None:
            super().load_own_variables(store)
        else:
            keras.layers.Layer.load_own_variables(self, store)
