"""Token embeddings, and the output projection that may share their table.

Axes: B batch, T length, D d_model, V vocabulary.
"""

from typing import Any

import keras
from keras import ops

from heedful import backend
from heedful.layers.rounding import RoundedKernel, rounds
from heedful.special_tokens import PAD_ID

NEVER_WRITTEN = -1e9  # bias of a token that must never be generated, such as padding in an imported model


@keras.saving.register_keras_serializable("heedful")
class TokenEmbedding(keras.layers.Embedding):
    """Turn ids into vectors scaled by sqrt(d_model), and vectors back into logits (Vaswani et al. 2017, section 3.4).

    The table starts with a standard deviation of 1 / sqrt(d_model): a scaled embedding then has unit variance, and so
    do the logits of a unit-variance vector when the table is also the output projection.

    Args:
        vocab_size: rows V of the table.
        d_model: width D of a vector.
        scale: whether embeddings are scaled; those of BERT and GPT-2 are not.
        bias: whether logits have a learned bias per token; a token with bias `NEVER_WRITTEN` is never generated.
        std: standard deviation of the entries of a new table; None: 1 / sqrt(d_model).
        mask_zero: whether the vectors carry a Keras mask that is False where the id is 0, padding. The layers of
            heedful pass it on, and attention reads it.
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        scale: bool = True,
        bias: bool = False,
        mask_zero: bool = False,
        std: float | None = None,
        **kwargs,
    ):
        self.vocab_size, self.d_model, self.scale, self.has_bias = vocab_size, d_model, scale, bias
        self.std = std
        initializer = keras.initializers.RandomNormal(stddev=d_model**-0.5 if std is None else std)
        super().__init__(vocab_size, d_model, embeddings_initializer=initializer, mask_zero=mask_zero, **kwargs)
        self.supports_masking = True
        self.bias: Any = None
        self.rounded: RoundedKernel | None = None

    def build(self, input_shape=None):
        super().build(input_shape)
        if rounds(self):
            self.rounded = RoundedKernel(self, (self.d_model, self.vocab_size), "embeddings")
        if self.has_bias:
            self.bias = self.add_weight((self.vocab_size,), "zeros", name="bias")

    def call(self, ids):
        """Embed ids (B, T) as (B, T, D)."""
        ids = ops.cast(ids, "int32")
        vectors = ops.cast(backend.look_up(self.embeddings, ids), self.compute_dtype)
        return vectors * ops.cast(self.d_model**0.5, vectors.dtype) if self.scale else vectors

    def compute_mask(self, inputs, previous_mask=None):
        return ops.not_equal(inputs, PAD_ID) if self.mask_zero else previous_mask

    def project(self, features):
        """Return the logits (B, T, V) of features (B, T, D)."""
        if self.rounded is not None:
            flat = self.rounded.multiply(ops.reshape(features, (-1, self.d_model)))
            logits = ops.reshape(flat, (*ops.shape(features)[:-1], self.vocab_size))
        else:
            table = ops.cast(self.embeddings, features.dtype)
            logits = ops.matmul(features, ops.transpose(table))
        return logits if self.bias is None else logits + ops.cast(self.bias, logits.dtype)

    def save_own_variables(self, store):
        """Save table and bias; Keras' `Embedding` would save only the table."""
        keras.layers.Layer.save_own_variables(self, store)

    def load_own_variables(self, store):
        keras.layers.Layer.load_own_variables(self, store)

    def get_config(self):
        base = keras.layers.Layer.get_config(self)
        return base | {
            "vocab_size": self.vocab_size, "d_model": self.d_model, "scale": self.scale, "bias": self.has_bias,
            "mask_zero": self.mask_zero, "std": self.std,
        }  # fmt: skip


def writable(biases):
    """Return a mask (..., V) of the tokens that may be generated, given their biases or logits (..., V)."""
    return biases > NEVER_WRITTEN / 2
