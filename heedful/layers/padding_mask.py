"""Tells Keras' own losses and metrics which positions are padding.

Axes: B batch, T length, V vocabulary.
"""

import keras
from keras import ops

from heedful.special_tokens import PAD_ID


@keras.saving.register_keras_serializable("heedful")
class PaddingMask(keras.layers.Layer):
    """Give logits (B, T, V) the mask that Keras' losses and metrics look for: real where the ids (B, T) read are.

    A layer of its own, because on JAX `fit` runs a model's `call` without asking the model for its mask.
    """

    def call(self, inputs):
        return inputs[0]

    def compute_mask(self, inputs, previous_mask=None):
        return ops.not_equal(inputs[1], PAD_ID)
