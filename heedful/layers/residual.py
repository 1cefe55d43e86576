"""The residual connection and the norm around a sublayer, and attention sublayers that are complete with both.

Axes: B batch, T length, S memory length, N heads, D d_model.
"""

from typing import Any, Self

import keras

from heedful import backend
from heedful.backend import Shape, Tensor
from heedful.config.architecture import choices
from heedful.layers.attention import MultiHeadAttention
from heedful.layers.dropout import Dropout, TextDropout
from heedful.layers.norms import EPSILON, Norm
from heedful.layers.same_shape import SameShape
from heedful.layers.trace import Trace, path_in_model

NORM_POSITIONS = choices("norm_position")


@keras.saving.register_keras_serializable("heedful")
class Residual(SameShape):
    """The residual connection and the norm around a sublayer.

    `post` computes norm(x + sublayer(x)), as in the paper (section 3.1). `pre` computes x + sublayer(norm(x)) (Xiong et
    al. 2020), which trains without a long warm-up and needs one more norm after the last block. In both cases a
    block computes `residual.after(x, sublayer(residual.before(x)))`; with a `sublayer`, the layer itself does so when
    it is called, `Residual(sublayer)(x)`.

    Args:
        sublayer: any layer from (B, T, D) to (B, T, D), or None. If it has several inputs, such as cross-attention,
            call `Residual(sublayer)([x, memory])`: the first input is the one that is normalised and added.
        norm_position: `post` or `pre`.
        dropout: fraction of the sublayer's output dropped in training.
        norm, norm_epsilon, bias: see `Norm`.
        layer_dropout: fraction of the texts for which training skips the sublayer, see `TextDropout`.
    """

    def __init__(
        self,
        sublayer: keras.layers.Layer | None = None,
        norm_position: str = "post",
        dropout: float = 0.0,
        norm: str = "layer",
        norm_epsilon: float = EPSILON,
        bias: bool = True,
        layer_dropout: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if norm_position not in NORM_POSITIONS:
            raise ValueError(f"Unknown norm_position {norm_position!r}: choose one of {', '.join(NORM_POSITIONS)}.")
        self.pre = norm_position == "pre"
        self.arguments = {
            "norm_position": norm_position, "dropout": dropout, "norm": norm, "norm_epsilon": norm_epsilon,
            "bias": bias, "layer_dropout": layer_dropout,
        }  # fmt: skip
        self.sublayer = sublayer
        if isinstance(sublayer, keras.Model):
            sublayer.supports_masking = True  # Keras does not say so of Sequential, whose layers do pass masks on
        self.norm = Norm(norm, norm_epsilon, bias)("norm", self.dtype_policy)
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)
        self.layer_dropout = None
        if layer_dropout:
            self.layer_dropout = TextDropout(layer_dropout, name="layer_dropout", dtype=self.dtype_policy)
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        several = not isinstance(input_shape[-1], int)  # a shape for each input
        if self.sublayer is not None and not self.sublayer.built:
            self.sublayer.build(*input_shape) if several else self.sublayer.build(input_shape)
        if not self.norm.built:  # as when a reader has called it by itself
            self.norm.build(input_shape[0] if several else input_shape)

    def call(self, inputs: Tensor) -> Tensor:
        """Apply the sublayer to `x` (B, T, D), or to the list [x, memory, ...], with residual connection and norm."""
        if self.sublayer is None:
            raise ValueError("A Residual without a sublayer cannot be called; use its `before` and `after`.")
        x, *others = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        return self.after(x, self.sublayer(self.before(x), *others))

    def compute_output_shape(self, input_shape: Shape, *others: Shape) -> Shape:
        return input_shape if isinstance(input_shape[-1], int) else input_shape[0]

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor | None = None) -> Tensor | None:
        """Return the mask of `x`."""
        return previous_mask[0] if isinstance(inputs, (list, tuple)) and previous_mask else previous_mask

    def before(self, x: Tensor) -> Tensor:
        """Return the input of the sublayer for `x` (B, T, D): norm(x), or x."""
        return self.norm(x) if self.pre else x

    def after(self, x: Tensor, change: Tensor) -> Tensor:
        """Return x + change, or norm(x + change), for the sublayer's output `change`; all (B, T, D)."""
        change = self.dropout(change)
        x = x + (change if self.layer_dropout is None else self.layer_dropout(change))
        return x if self.pre else self.norm(x)

    def get_config(self) -> dict[str, Any]:
        sublayer = self.sublayer and keras.saving.serialize_keras_object(self.sublayer)
        return super().get_config() | {"sublayer": sublayer} | self.arguments

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        sublayer = config.get("sublayer")  # missing in models of heedful 0.1.0
        return cls(**config | {"sublayer": sublayer and keras.saving.deserialize_keras_object(sublayer)})


class AttentionSublayer(SameShape):
    """Attention with its residual connection and norm, the base class of the three kinds below.

    Args:
        d_model, num_heads, head_dim: the sizes, see `MultiHeadAttention`.
        norm_position, dropout, norm_epsilon: see `Residual`.
        keep_weights: whether a call keeps the attention weights in `last_attention_weights`, (B, N, T, S). Calls
            inside compiled functions, such as those of `fit` and `predict`, have no values to keep.
        attention: other keyword arguments of `MultiHeadAttention`, such as `bias`.
    """

    own_options: dict[str, Any] = {}

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        head_dim: int | None = None,
        norm_position: str = "post",
        dropout: float = 0.0,
        norm_epsilon: float = EPSILON,
        keep_weights: bool = False,
        attention: dict[str, Any] | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.arguments = {
            "d_model": d_model, "num_heads": num_heads, "head_dim": head_dim, "norm_position": norm_position,
            "dropout": dropout, "norm_epsilon": norm_epsilon, "keep_weights": keep_weights, "attention": attention,
        }  # fmt: skip
        self.supports_masking, self.keep_weights = True, keep_weights
        self.last_attention_weights = None
        options: dict[str, Any] = {"head_dim": head_dim, "norm_epsilon": norm_epsilon}
        options |= self.own_options | (attention or {})
        self.attention = MultiHeadAttention(d_model, num_heads, name="attention", dtype=self.dtype_policy, **options)
        self.residual = Residual(
            None, norm_position, dropout, norm_epsilon=norm_epsilon, name="residual", dtype=self.dtype_policy
        )

    def build(self, *shapes: Shape) -> None:
        if not self.attention.built:
            self.attention.build()
        if not self.residual.built:
            self.residual.build((None, None, self.attention.d_model))

    def _attend(self, x: Tensor, **options: Any) -> Tensor:
        trace = Trace() if self.keep_weights else None
        attended = self.attention(self.residual.before(x), trace=trace, **options)
        if trace is not None:
            weights = trace[path_in_model(self.attention)]
            self.last_attention_weights = weights if backend.has_values(weights) else None
        return self.residual.after(x, attended)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | self.arguments


@keras.saving.register_keras_serializable("heedful")
class SelfAttention(AttentionSublayer):
    """Self-attention with its residual connection and norm; arguments as in `AttentionSublayer`."""

    def call(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        """Map `x` (B, T, D) to (B, T, D); for `visible` and Keras masks see `MultiHeadAttention`."""
        return self._attend(x, visible=visible)


@keras.saving.register_keras_serializable("heedful")
class CausalSelfAttention(SelfAttention):
    """Self-attention that hides the tokens after each position; arguments as in `AttentionSublayer`."""

    own_options = {"causal": True}


@keras.saving.register_keras_serializable("heedful")
class CrossAttention(AttentionSublayer):
    """Cross-attention with its residual connection and norm; arguments as in `AttentionSublayer`."""

    own_options = {"cross": True}

    def call(self, x: Tensor, memory: Tensor, visible: Tensor | None = None) -> Tensor:
        """Let `x` (B, T, D) attend to `memory` (B, S, D); for `visible` and masks see `MultiHeadAttention`."""
        return self._attend(x, memory=memory, visible=visible)
