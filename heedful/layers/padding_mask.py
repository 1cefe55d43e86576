"""Padding masks for Keras' own losses and metrics.

Axes: B batch, T length, V vocabulary.
"""

import keras
from keras import ops

from heedful.special_tokens import PAD_ID


@keras.saving.register_keras_serializable("heedful")
class PaddingMask(keras.layers.Layer):
    """Attach a Keras mask to logits (B, T, V): True at real tokens of the ids (B, T), False at padding.

    This is a separate layer because on JAX `fit` runs a model's `call` without asking the model for its mask.
    """

    def __init__(self, **options):
        super().__init__(**options)
        self.built = True  # without weights; otherwise each `fit` traces the model to build this layer

    def call(self, inputs):
        return inputs[0]

    def compute_mask(self, inputs, previous_mask=None):
        return ops.not_equal(inputs[1], PAD_ID)
