"""Token embeddings, and the output projection that may share their table.

Axes: B batch, T length, D d_model, V vocabulary.
"""

import keras
from keras import ops


@keras.saving.register_keras_serializable("heedful")
class TokenEmbedding(keras.layers.Embedding):
    """Turn ids into vectors scaled by sqrt(d_model), and vectors back into logits (Vaswani et al. 2017, section 3.4).

    The table starts with a standard deviation of 1 / sqrt(d_model): a scaled embedding then has unit variance, and so
    do the logits of a unit-variance vector when the table is also the output projection.

    Args:
        vocab_size: rows V of the table.
        d_model: width D of a vector.
    """

    def __init__(self, vocab_size, d_model, **kwargs):
        self.vocab_size, self.d_model = vocab_size, d_model
        initializer = keras.initializers.RandomNormal(stddev=d_model**-0.5)
        super().__init__(vocab_size, d_model, embeddings_initializer=initializer, **kwargs)

    def call(self, ids):
        """Embed ids (B, T) as (B, T, D)."""
        vectors = super().call(ids)
        return vectors * ops.cast(self.d_model**0.5, vectors.dtype)

    def project(self, features):
        """Score every word of the vocabulary: (B, T, D) -> logits (B, T, V)."""
        table = ops.cast(self.embeddings, features.dtype)
        return ops.matmul(features, ops.transpose(table))

    def get_config(self):
        base = keras.layers.Layer.get_config(self)
        return base | {"vocab_size": self.vocab_size, "d_model": self.d_model}
