"""The base class of all models: their architecture, and the layers that are built from it.

Axes: B batch, K hypotheses, S source length, D d_model, V vocabulary.
"""

import dataclasses
from typing import Any, NamedTuple

import keras
from keras import ops

from heedful.architecture import Architecture, from_format_1
from heedful.layers import masks
from heedful.layers.embeddings import TokenEmbedding
from heedful.layers.input_embedding import InputEmbedding
from heedful.layers.norms import Norm


class DecodeStep(NamedTuple):
    """The result of one decode step for K hypotheses of each of B texts."""

    logits: Any  # (B, K, V), of the next token
    past: Any  # updated caches
    attention: Any = None  # (B, K, S), attention to the source, if requested


class Base(keras.Model):
    """A model whose constructor creates all weights, and which `arguments` describes completely.

    Args:
        sizes: keyword arguments of the model class, such as vocabulary sizes.
        architecture: keyword arguments, see `Architecture`.
    """

    def __init__(self, sizes, *, name: str | None = None, dtype=None, trainable=True, **architecture):
        super().__init__(name=name, dtype=dtype, trainable=trainable)
        self.sizes, self.architecture = sizes, Architecture(**architecture)
        self.d_model, self.num_layers = self.architecture.d_model, self.architecture.num_layers
        self.max_length = self.architecture.max_length

    @property
    def parts(self):
        """All layers with weights, in order of creation."""
        raise NotImplementedError

    def build(self, input_shape=None):
        """Create all weights; called by the constructor."""
        for part in self.parts:
            if not part.built:
                reads_ids = isinstance(part, (TokenEmbedding, InputEmbedding))
                part.build((None, None) if reads_ids else (None, None, self.d_model))
        self.built = True

    @property
    def arguments(self):
        """The keyword arguments of the constructor, without name and dtype."""
        return self.sizes | dataclasses.asdict(self.architecture)

    def get_config(self):
        return super().get_config() | self.arguments

    @classmethod
    def from_config(cls, config: dict[str, Any]):
        """Create a model from what `get_config` returned, in this version or in heedful 0.1.0."""
        return cls(**from_format_1(config))

    def build_from_config(self, config: dict[str, Any]):
        """Do nothing: the constructor has built everything."""

    def read_ids(self, inputs):
        """Return the input ids (B, T) that the logits belong to; None if the logits belong to whole texts."""
        return

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Compute the compiled metrics without padding: on JAX the gradient removes the mask from the logits."""
        ids = self.read_ids(x)
        masked = y_pred if ids is None else self.attach_mask((y_pred, ids))
        return super().compute_metrics(x, y, masked, sample_weight)

    def causal_mask(self, length):
        """Return the mask (1, 1, T, T) that hides the tokens after each position; all visible if the model has none."""
        places = ops.arange(length)
        visible = masks.causal(places, places)
        return visible if self.architecture.causal_mask else ops.ones_like(visible)

    @property
    def new_norm(self):
        """The `Norm` that creates every norm of the model."""
        return Norm(self.architecture.norm, self.architecture.norm_epsilon, self.architecture.bias)

    def new_tables(self, vocab_size: int):
        """Return the embedding of one vocabulary and its output projection: one `TokenEmbedding` if tied, or two."""
        chosen = self.architecture
        options = {"scale": chosen.embedding_scale, "std": chosen.embedding_std, "dtype": self.dtype_policy}
        projects = {"bias": chosen.output_bias, **options}
        if chosen.tie in ("target", "all"):
            both = TokenEmbedding(vocab_size, self.d_model, name="embedding", **projects)
            return both, both
        projection = TokenEmbedding(vocab_size, self.d_model, name="output_projection", **projects)
        return TokenEmbedding(vocab_size, self.d_model, name="embedding", **options), projection

    def block_options(self):
        """Return the keyword arguments of each block."""
        chosen = self.architecture
        return {
            "d_model": chosen.d_model, "num_heads": chosen.num_heads, "d_ff": chosen.d_ff,
            "num_kv_heads": chosen.num_kv_heads, "head_dim": chosen.head_dim, "activation": chosen.activation,
            "norm_position": chosen.norm_position,
            "norm": chosen.norm, "norm_epsilon": chosen.norm_epsilon, "bias": chosen.bias,
            "dropout": chosen.dropout, "attention_dropout": chosen.attention_dropout,
            "feed_forward_dropout": chosen.feed_forward_dropout,
            "attention_projections": chosen.attention_projections, "rotary": chosen.positions == "rotary",
            "rotary_base": chosen.rotary_base,
        }  # fmt: skip

    def input_options(self):
        """Return the keyword arguments of each `InputEmbedding`."""
        chosen = self.architecture
        return {
            "positions": chosen.positions, "max_length": chosen.max_length, "dropout": chosen.dropout,
            "new_norm": self.new_norm if chosen.embedding_norm else None, "dtype": self.dtype_policy,
        }  # fmt: skip
