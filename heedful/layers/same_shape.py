"""The base class of layers whose output has the shape of their first input."""

from typing import Any

import keras

from heedful.backend import Shape


class SameShape(keras.layers.Layer):
    """A layer whose output has the shape of its first input, which Keras asks for in `TimeDistributed` and others."""

    def compute_output_shape(self, input_shape: Shape, *others: Shape) -> Shape:
        return input_shape

    def compute_output_spec(self, *arguments: Any, **options: Any) -> Any:
        """Return the symbolic output of `call`, which finds inputs that do not fit; Keras would trust the shape."""
        return keras.Operation.compute_output_spec(self, *arguments, **options)
