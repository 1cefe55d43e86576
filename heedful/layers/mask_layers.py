"""Layers that attach Keras masks to their input; the values pass through unchanged.

Attention reads the mask of its input. Keras' own losses and metrics read the mask of a model's output.
Axes: B batch, T length, V vocabulary.
"""

from typing import Any

import keras
from keras import ops

from heedful.backend import Shape, Tensor
from heedful.core.special_tokens import PAD_ID
from heedful.layers.same_shape import SameShape


@keras.saving.register_keras_serializable("heedful")
class PaddingMask(keras.layers.Layer):
    """Attach a Keras mask that is True at real tokens and False at padding, whose id is 0.

    Call it with ids (B, T) before an embedding; or with a pair of any tensor (B, T, ...), such as logits, and ids
    (B, T). It returns the ids, or the first of the pair. It is a layer because on JAX `fit` runs a model's `call`
    without asking the model for its mask.
    """

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.built = True  # without weights; otherwise each `fit` traces the model to build this layer

    def build(self, input_shape: Shape) -> None:
        """Do nothing; Keras records the shape for `summary`."""

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape[0] if isinstance(input_shape[0], (list, tuple)) else input_shape

    def call(self, inputs: Tensor) -> Tensor:
        return inputs[0] if isinstance(inputs, (list, tuple)) else ops.copy(inputs)

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor | None = None) -> Tensor | None:
        return ops.not_equal(inputs[1] if isinstance(inputs, (list, tuple)) else inputs, PAD_ID)


@keras.saving.register_keras_serializable("heedful")
class CausalMask(SameShape):
    """Attach a Keras mask (B, T, T) that hides later tokens, and padding if the input (B, T, ...) has a mask (B, T).

    All attention layers after it read this mask, so a stack of encoder blocks becomes a decoder without
    cross-attention. Losses need a mask (B, T): place this layer inside a `Residual`, whose output keeps the mask of
    its input, or attach a `PaddingMask` to the logits.
    """

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.built = True

    def call(self, inputs: Tensor) -> Tensor:
        return ops.copy(inputs)  # a copy, because Keras keeps a mask that a tensor already has

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor | None = None) -> Tensor | None:
        rows = inputs if len(inputs.shape) == 2 else inputs[..., 0]  # (B, T)
        places = ops.cumsum(ops.ones_like(rows, "int32"), axis=1)  # of unknown length in a functional model
        causal = places[:, None, :] <= places[:, :, None]
        return causal if previous_mask is None else ops.logical_and(causal, previous_mask[:, None, :])
