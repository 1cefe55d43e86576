"""The encoder-only Transformer, for predicting masked tokens or classifying texts.

Axes: B batch, T length, M masked places of a text, D d_model, V vocabulary, C classes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from heedful.backend import Shape, Tensor
from heedful.core.special_tokens import PAD_ID
from heedful.layers import masks
from heedful.layers.blocks import EncoderBlock, Stack
from heedful.layers.convolution import Convolutions
from heedful.layers.dropout import Dropout
from heedful.layers.embeddings import TokenEmbedding
from heedful.layers.feed_forward import activation_function
from heedful.layers.input_embedding import InputEmbedding
from heedful.layers.mask_layers import PaddingMask
from heedful.layers.projection import Projection
from heedful.layers.trace import Trace
from heedful.models.base import Base

POOLINGS = ("first", "mean", "max")
LOWEST = -1e9  # below any component of a vector, and finite


class TextEncoder(Base):
    """Base class of `MaskedLM` and `Classifier`: a bidirectional encoder from ids to a vector per token.

    Args:
        vocab_size: size of the vocabulary, padding included.
        more_sizes: additional keyword arguments of the model class.
        architecture: keyword arguments, see `Architecture`.
    """

    def __init__(self, vocab_size: int, more_sizes: Mapping[str, Any] | None = None, **architecture: Any):
        super().__init__({"vocab_size": vocab_size, **(more_sizes or {})}, **architecture)
        self.vocab_size = vocab_size
        self.convolutions: Convolutions | None = None  # over the input of the first block; not a class attribute, which
        # would hide the layer on torch

    def _assemble(self, embedding: TokenEmbedding) -> None:
        policy = self.dtype_policy
        self.embedding = embedding
        self.text_input = InputEmbedding(embedding, name="text_input", **self.input_options())
        blocks = self.architecture.block_options()
        self.encoder = Stack(EncoderBlock, self.only_depth, blocks, name="encoder", dtype=policy)

    @property
    def parts(self) -> list[keras.Layer]:
        return [self.embedding, self.text_input, self.encoder]

    def encode(self, ids: Tensor, training: bool | None = None, trace: Trace | None = None) -> Tensor:
        """Encode ids (B, T), 0 at padding, as vectors (B, T, D)."""
        training = training if self.encoder.trainable else False  # a frozen encoder has no dropout
        visible = masks.padding(ops.not_equal(ids, PAD_ID))
        x = self.text_input(ids, training=training)
        if self.convolutions is not None:
            x = self.convolutions(x, ops.not_equal(ids, PAD_ID))
        return self.encoder(x, visible=visible, training=training, trace=trace)

    def pool(self, ids: Tensor, vectors: Tensor, pooling: str) -> Tensor:
        """Pool the token vectors (B, T, D) of each text into one (B, D): the `first` one, the `mean`, or the `max`."""
        if pooling == "first":
            return vectors[:, 0]
        is_token = ops.not_equal(ids, PAD_ID)[..., None]
        real = ops.cast(is_token, vectors.dtype)
        if pooling == "max":  # rows of padding alone, which fill up batches, give zeros
            return ops.max(ops.where(is_token, vectors, LOWEST), axis=1) * ops.max(real, axis=1)
        return ops.sum(vectors * real, axis=1) / ops.maximum(ops.sum(real, axis=1), 1)

    def freeze(self) -> None:
        """Freeze embeddings and encoder; the head stays trainable."""
        for part in (self.embedding, self.text_input, self.encoder):
            part.trainable = False


@keras.saving.register_keras_serializable("heedful")
class MaskedLM(TextEncoder):
    """Encoder-only Transformer (Devlin et al. 2019), from masked ids to logits of the original ids.

    Call it with `{"ids": (B, T)}` or the ids alone, padded with 0 at the end. Returns logits (B, T, V) with a Keras
    mask. A projection with activation and a norm precede the output projection, as in BERT.
    """

    def __init__(self, vocab_size: int, **architecture: Any):
        super().__init__(vocab_size, **architecture)
        policy = self.dtype_policy
        embedding, self.output_projection = self.new_tables(vocab_size)
        self._assemble(embedding)
        activation = activation_function(self.architecture.activation)
        self.transform = Projection(self.d_model, activation=activation, name="transform", dtype=policy)
        self.transform_norm = self.new_norm("transform_norm", policy)
        self.attach_mask = PaddingMask(name="published_mask", dtype=policy)
        self.attach_mask.build((None, None, vocab_size))
        self.build()

    @property
    def parts(self) -> list[keras.Layer]:
        return [*super().parts, self.transform, self.transform_norm, self.output_projection]

    def read_ids(self, inputs: Any) -> Tensor | None:
        return self.named(inputs)["ids"]

    def call(self, inputs: Any, training: bool | None = None, trace: Trace | None = None) -> Tensor:
        """Return the logits (B, T, V) of the token at each position."""
        ids = self.read_ids(inputs)
        return self.attach_mask((self.project(self.features(ids, training, trace)), ids))

    def features(self, inputs: Any, training: bool | None = None, trace: Trace | None = None) -> Tensor:
        """Return the input of `project`: (B, T, D), or (B, M, D) at `places` (B, M) if those are given."""
        inputs = self.named(inputs)
        vectors = self.encode(inputs["ids"], training, trace)
        if "places" in inputs:
            vectors = ops.take_along_axis(vectors, inputs["places"][..., None], axis=1)
        return self.transform_norm(self.transform(vectors))

    def project(self, features: Tensor) -> Tensor:
        """Return the logits (B, T, V) of features (B, T, D)."""
        return self.output_projection.project(features)


@keras.saving.register_keras_serializable("heedful")
class Classifier(TextEncoder):
    """An encoder that classifies texts, from ids to logits (B, C).

    Args:
        vocab_size: size of the vocabulary, padding included.
        num_classes: classes C.
        pooling: `first`: the first token's vector through a projection with an activation, as in BERT; `mean`: the mean
            vector; `max`: the largest value of each component.
        pooler_activation: `tanh` (BERT) or `relu` (DistilBERT).
        convolutions: odd widths of `Convolutions` over the input of the first block; none: no such layer.
        several_labels: whether a text may have several classes, or none: each logit then decides about its own.
        architecture: keyword arguments, see `Architecture`.
    """

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        *,
        pooling: str = "mean",
        pooler_activation: str = "tanh",
        convolutions: Sequence[int] = (),
        several_labels: bool = False,
        **architecture: Any,
    ):
        architecture |= {"output_bias": False}  # for a vocabulary; the class projection has its own bias
        sizes: dict[str, Any] = {"num_classes": num_classes, "pooling": pooling, "pooler_activation": pooler_activation}
        if convolutions:
            sizes["convolutions"] = tuple(convolutions)
        if several_labels:
            sizes["several_labels"] = True
        super().__init__(vocab_size, sizes, **architecture)
        self._assemble(self.new_tables(vocab_size)[0])
        if pooling not in POOLINGS:
            raise ValueError(f"Unknown pooling {pooling!r}: choose one of {', '.join(POOLINGS)}.")
        self.num_classes, self.pooling, self.several_labels = num_classes, pooling, several_labels
        policy = self.dtype_policy
        # Created for any pooling, so that what is created next starts from the same random draws.
        pooler = Projection(self.d_model, activation=pooler_activation, name="pooler", dtype=policy)
        self.pooler = pooler if pooling == "first" else None
        self.pooler_dropout = Dropout(self.architecture.dropout, name="pooler_dropout", dtype=policy)
        self.pooler_dropout.build((None, 1, self.d_model))
        self.output_projection = TokenEmbedding(
            num_classes, self.d_model, scale=False, bias=True, name="output_projection", dtype=policy
        )
        if convolutions:
            self.convolutions = Convolutions(self.d_model, convolutions, name="convolutions", dtype=policy)
        self.build()

    @property
    def parts(self) -> list[keras.Layer]:
        optional = [part for part in (self.convolutions, self.pooler) if part]
        return [*super().parts, *optional, self.output_projection]

    def compute_output_shape(self, input_shape: Shape, *others: Shape) -> Shape:
        return (self.named(input_shape)["ids"][0], self.num_classes)

    def call(self, inputs: Any, training: bool | None = None, trace: Trace | None = None) -> Tensor:
        """Return the logits (B, C) of each text's class."""
        return self.output_projection.project(self.features(inputs, training, trace))[:, 0]

    def features(self, inputs: Any, training: bool | None = None, trace: Trace | None = None) -> Tensor:
        """Return one vector per text (B, 1, D), from which `output_projection` computes logits."""
        ids = self.named(inputs)["ids"]
        pooled = self.pool(ids, self.encode(ids, training, trace), self.pooling)[:, None]
        if self.pooler:
            pooled = self.pooler(pooled)
        return self.pooler_dropout(pooled, training=training)
