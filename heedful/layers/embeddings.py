"""Token embeddings, and the output projection that may share their table.

Axes: B batch, T length, D d_model, V vocabulary.
"""

from typing import Any

import keras
from keras import ops

from heedful import backend
from heedful.backend import Shape, Tensor
from heedful.core.special_tokens import PAD_ID, START_ID
from heedful.layers.checks import check_ids
from heedful.layers.initial_values import LoadableLayer
from heedful.layers.rounding import RoundedKernel, rounds

NEVER_WRITTEN = -1e9  # bias of a token that must never be generated, such as padding in an imported model


@keras.saving.register_keras_serializable("heedful")
class TokenEmbedding(LoadableLayer, keras.layers.Embedding):
    """Turn ids into vectors scaled by sqrt(d_model), and vectors back into logits (Vaswani et al. 2017, section 3.4).

    The table starts with a standard deviation of 1 / sqrt(d_model): a scaled embedding then has unit variance, and so
    do the logits of a unit-variance vector when the table is also the output projection.

    Args:
        vocab_size: rows V of the table.
        d_model: width D of a vector.
        scale: whether embeddings are scaled; those of BERT and GPT-2 are not.
        bias: whether logits have a learned bias per token; a token with bias `NEVER_WRITTEN` is never generated.
        std: standard deviation of the entries of a new table; None: 1 / sqrt(d_model).
        zero_start: whether the vector of the start token is and stays zero, as in Marian. It gets no gradient.
        embeddings_initializer: a Keras initializer of a new table; None: normal, with `std`.
        mask_zero: whether the vectors carry a Keras mask that is False where the id is 0, padding. The layers of
            heedful pass it on, and attention reads it.
        kwargs: those of `keras.layers.Embedding`, such as `embeddings_regularizer` or `lora_rank`.
    """

    lora_rank: Any  # of Keras

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        scale: bool = True,
        bias: bool = False,
        mask_zero: bool = False,
        std: float | None = None,
        zero_start: bool = False,
        embeddings_initializer: Any = None,
        **kwargs: Any,
    ):
        if std is not None and embeddings_initializer is not None:
            raise ValueError("A new table has either a std or an embeddings_initializer.")
        self.vocab_size, self.d_model, self.scale, self.has_bias = vocab_size, d_model, scale, bias
        self.std, self.initialized_by_std, self.zero_start = std, embeddings_initializer is None, zero_start
        normal = keras.initializers.RandomNormal(stddev=d_model**-0.5 if std is None else std)
        initializer = embeddings_initializer or normal
        super().__init__(vocab_size, d_model, embeddings_initializer=initializer, mask_zero=mask_zero, **kwargs)
        self.supports_masking = True
        self.bias: Any = None
        self.rounded: RoundedKernel | None = None

    def build(self, input_shape: Shape | None = None) -> None:
        if self.built:
            return
        rank, self.lora_rank = self.lora_rank, None  # enabled below: with the bias before it, as by `enable_lora` later
        super().build(input_shape)
        if self.zero_start:
            self._embeddings.assign(self.output_table)
        if rounds(self):
            self.rounded = RoundedKernel(self, (self.d_model, self.vocab_size), "embeddings")
        if self.has_bias:
            self.bias = self.add_weight((self.vocab_size,), "zeros", name="bias")
        if rank:
            self.enable_lora(rank, self.lora_alpha)

    def call(self, ids: Tensor) -> Tensor:
        """Embed ids (B, T) as (B, T, D).

        Raises:
            ValueError: an id is not in the vocabulary, see `check_ids`. In compiled code JAX returns NaN for it.
        """
        check_ids(ids, self.vocab_size)
        ids = ops.cast(ids, "int32")
        vectors = ops.cast(backend.look_up(self.embeddings, ids), self.compute_dtype)
        if self.zero_start:
            vectors *= ops.cast(ids != START_ID, vectors.dtype)[..., None]
        return vectors * ops.cast(self.d_model**0.5, vectors.dtype) if self.scale else vectors

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor | None = None) -> Tensor | None:
        return ops.not_equal(inputs, PAD_ID) if self.mask_zero else previous_mask

    def project(self, features: Tensor) -> Tensor:
        """Return the logits (B, T, V) of features (B, T, D)."""
        if self.rounded is not None:
            flat = self.rounded.multiply(ops.reshape(features, (-1, self.d_model)))
            logits = ops.reshape(flat, (*ops.shape(features)[:-1], self.vocab_size))
        else:
            table = ops.cast(self.output_table, features.dtype)
            logits = ops.matmul(features, ops.transpose(table))
        return logits if self.bias is None else logits + ops.cast(self.bias, logits.dtype)

    @property
    def output_table(self) -> Tensor:
        """The table (V, D) with which `project` computes logits; with `zero_start`, its start token has no gradient."""
        if not self.zero_start:
            return self.embeddings
        table = ops.convert_to_tensor(self.embeddings)
        return table * ops.cast(ops.arange(self.vocab_size) != START_ID, table.dtype)[:, None]

    def save_own_variables(self, store: Any) -> None:
        """Save table and bias; Keras' `Embedding` would save the table alone. LoRA is merged into it, as there."""
        if not self.lora_enabled:
            keras.layers.Layer.save_own_variables(self, store)
            return
        for place, array in enumerate((self.embeddings, *([] if self.bias is None else [self.bias]))):
            store[str(place)] = array

    def load_own_variables(self, store: Any) -> None:
        if not self.lora_enabled:
            keras.layers.Layer.load_own_variables(self, store)
            return
        for place, variable in enumerate((self._embeddings, *([] if self.bias is None else [self.bias]))):
            variable.assign(store[str(place)])
        self.lora_embeddings_b.assign(ops.zeros(self.lora_embeddings_b.shape))  # it is in the table; with the other
        # factor zero too, as Keras sets it, neither would have a gradient

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        for name in ("input_dim", "output_dim", "quantization_config"):
            del config[name]
        if self.initialized_by_std:
            del config["embeddings_initializer"]
        return config | {
            "vocab_size": self.vocab_size, "d_model": self.d_model, "scale": self.scale, "bias": self.has_bias,
            "std": self.std, "zero_start": self.zero_start,
        }  # fmt: skip


def writable(biases: Any) -> Any:
    """Return a mask (..., V) of the tokens that may be generated, given their biases or logits (..., V)."""
    return biases > NEVER_WRITTEN / 2
