"""The model of the task: an encoder with an output projection at each position.

Axes: B batch, T length, D d_model, C tags.
"""

import keras

from heedful.layers.embeddings import TokenEmbedding
from heedful.models.masked_lm import TextEncoder


@keras.saving.register_keras_serializable("heedful_tagging")
class Tagger(TextEncoder):
    """Ids (B, T) in, logits of the tags (B, T, C) out."""

    def __init__(self, vocab_size, num_tags, **architecture):
        super().__init__(vocab_size, {"num_tags": num_tags}, **architecture | {"output_bias": False})
        self._assemble(self.new_tables(vocab_size)[0])
        self.output_projection = TokenEmbedding(
            num_tags, self.d_model, scale=False, bias=True, name="output_projection", dtype=self.dtype_policy
        )
        self.build()

    @property
    def parts(self):
        return [*super().parts, self.output_projection]

    def call(self, inputs, training=None, trace=None):
        return self.output_projection.project(self.features(inputs, training, trace))

    def features(self, inputs, training=None, trace=None):
        return self.encode(inputs["ids"], training, trace)
