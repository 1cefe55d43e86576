"""The blocks of encoder and decoder, and the stacks of them.

Axes: B batch, T target length, S source length, D d_model.
"""

from typing import NamedTuple

import keras

from heedful.layers.attention import KeyValues, MultiHeadAttention
from heedful.layers.dropout import Dropout
from heedful.layers.feed_forward import FeedForward
from heedful.layers.norms import EPSILON, Norm

NORMS = ("post", "pre")


class DecoderCache(NamedTuple):
    """What a decoder block keeps between steps: its own past, and the memory projected once."""

    past: KeyValues
    memory: KeyValues


@keras.saving.register_keras_serializable("heedful")
class Residual(keras.layers.Layer):
    """The residual connection and norm around a sublayer.

    `post` normalises the sum, as the paper does (section 3.1); `pre` normalises what the sublayer reads
    (Xiong et al. 2020), which trains without warm-up and needs one more norm after the last block.

    Args:
        norm: `post` or `pre`.
        dropout: share of the sublayer's output dropped in training.
        norm_kind, norm_epsilon, bias: see `Norm`.
    """

    def __init__(self, norm="post", dropout=0.0, norm_kind="layer", norm_epsilon=EPSILON, bias=True, **kwargs):
        super().__init__(**kwargs)
        if norm not in NORMS:
            raise ValueError(f"Unknown norm {norm!r}: choose one of {', '.join(NORMS)}.")
        self.norm_first = norm == "pre"
        self.arguments = {
            "norm": norm, "dropout": dropout, "norm_kind": norm_kind, "norm_epsilon": norm_epsilon, "bias": bias,
        }  # fmt: skip
        self.norm = Norm(norm_kind, norm_epsilon, bias)("norm", self.dtype_policy)
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)

    def build(self, input_shape):
        self.norm.build(input_shape)

    def enter(self, x):
        """Return what the sublayer reads of `x` (B, T, D)."""
        return self.norm(x) if self.norm_first else x

    def leave(self, x, change):
        """Add the sublayer's `change` to `x`, both (B, T, D)."""
        x = x + self.dropout(change)
        return x if self.norm_first else self.norm(x)

    def get_config(self):
        return super().get_config() | self.arguments


@keras.saving.register_keras_serializable("heedful")
class EncoderBlock(keras.layers.Layer):
    """Self-attention and feed-forward, each inside a residual connection (Vaswani et al. 2017, section 3.1).

    Args:
        d_model, num_heads, num_kv_heads, d_ff, activation: the sizes; see `MultiHeadAttention` and `FeedForward`.
        norm: `post` or `pre`.
        dropout: share of each sublayer's output dropped in training.
        attention_dropout: share of attention weights dropped in training.
        rotary: rotary positions in self-attention.
        bias: whether projections and layer norms have one.
        norm_kind, norm_epsilon: see `Norm`.
    """

    def __init__(
        self, d_model, num_heads, d_ff, *, num_kv_heads=None, activation="relu", norm="post", dropout=0.1,
        attention_dropout=0.0, rotary=False, bias=True, norm_kind="layer", norm_epsilon=EPSILON, **kwargs,
    ):  # fmt: skip
        super().__init__(**kwargs)
        self.d_model = d_model
        self.arguments = {
            "d_model": d_model, "num_heads": num_heads, "d_ff": d_ff, "num_kv_heads": num_kv_heads,
            "activation": activation, "norm": norm, "dropout": dropout, "attention_dropout": attention_dropout,
            "rotary": rotary, "bias": bias, "norm_kind": norm_kind, "norm_epsilon": norm_epsilon,
        }  # fmt: skip
        shared = {"bias": bias, "dtype": self.dtype_policy}
        heads = {"num_kv_heads": num_kv_heads, "dropout": attention_dropout} | shared
        residual = {"norm": norm, "dropout": dropout, "norm_kind": norm_kind, "norm_epsilon": norm_epsilon} | shared
        self.attention = MultiHeadAttention(d_model, num_heads, rotary=rotary, name="self_attention", **heads)
        self.attention_residual = Residual(name="self_attention_residual", **residual)
        self.feed_forward = FeedForward(d_model, d_ff, activation, name="feed_forward", **shared)
        self.feed_forward_residual = Residual(name="feed_forward_residual", **residual)

    def build(self, input_shape=None):
        for part in (self.attention, self.attention_residual, self.feed_forward, self.feed_forward_residual):
            part.build((None, None, self.d_model))

    def call(self, x, visible=None, cache=None, place=0, positions=None, trace=None):
        """Map `x` (B, S, D) to (B, S, D); with a cache (`KeyValues` or `Prompted`), return (output, next cache)."""
        x, cache = self._self_attend(x, visible, cache, place, positions, trace)
        x = self._feed_forward(x)
        return x if cache is None else (x, cache)

    def get_config(self):
        return super().get_config() | self.arguments

    def _self_attend(self, x, visible, cache, place, positions, trace):
        """Return the output of the first sublayer, and the next cache, None if there is none."""
        around = self.attention_residual
        attended = self.attention(
            around.enter(x), visible=visible, cache=cache, place=place, positions=positions, trace=trace
        )
        attended, cache = (attended, None) if cache is None else attended
        return around.leave(x, attended), cache

    def _feed_forward(self, x):
        """Return the output of the last sublayer."""
        around = self.feed_forward_residual
        return around.leave(x, self.feed_forward(around.enter(x)))


@keras.saving.register_keras_serializable("heedful")
class DecoderBlock(EncoderBlock):
    """An encoder block with cross-attention to a memory between its two sublayers. Arguments as there."""

    def __init__(
        self, d_model, num_heads, d_ff, *, num_kv_heads=None, norm="post", dropout=0.1, attention_dropout=0.0,
        bias=True, norm_kind="layer", norm_epsilon=EPSILON, **kwargs,
    ):  # fmt: skip
        heads = {"num_kv_heads": num_kv_heads}
        residual = {"norm": norm, "dropout": dropout, "norm_kind": norm_kind, "norm_epsilon": norm_epsilon}
        options = heads | residual | kwargs
        super().__init__(d_model, num_heads, d_ff, attention_dropout=attention_dropout, bias=bias, **options)
        shared = {"bias": bias, "dtype": self.dtype_policy}
        self.cross_attention = MultiHeadAttention(
            d_model, num_heads, cross=True, dropout=attention_dropout, name="cross_attention", **heads, **shared
        )
        self.cross_residual = Residual(name="cross_attention_residual", **residual, **shared)

    def build(self, input_shape=None):
        super().build(input_shape)
        self.cross_attention.build()
        self.cross_residual.build((None, None, self.d_model))

    def call(self, x, memory=None, visible=None, memory_visible=None, cache=None, place=0, positions=None, trace=None):
        """Map `x` (B, T, D), reading `memory` (B, S, D), to (B, T, D); with a `DecoderCache`, return (output, next)."""
        past, memory = (None, memory) if cache is None else cache
        x, past = self._self_attend(x, visible, past, place, positions, trace)
        around = self.cross_residual
        attended = self.cross_attention(around.enter(x), memory=memory, visible=memory_visible, trace=trace)
        x = self._feed_forward(around.leave(x, attended))
        return x if cache is None else (x, DecoderCache(past, memory))


@keras.saving.register_keras_serializable("heedful")
class Stack(keras.layers.Layer):
    """A row of equal blocks, and the final norm that pre-norm needs.

    Args:
        block: `EncoderBlock` or `DecoderBlock`.
        num_layers: how many of them.
        options: keyword arguments of each block.
    """

    def __init__(self, block, num_layers, options, **kwargs):
        super().__init__(**kwargs)
        if num_layers < 1:
            raise ValueError(f"num_layers ({num_layers}) must be at least 1.")
        block = keras.saving.get_registered_object(block) if isinstance(block, str) else block  # from a config
        self.blocks = [block(**options, name=f"block_{i}", dtype=self.dtype_policy) for i in range(num_layers)]
        arguments = self.blocks[0].arguments
        new_norm = Norm(arguments["norm_kind"], arguments["norm_epsilon"], arguments["bias"])
        self.final_norm = new_norm("final_norm", self.dtype_policy) if arguments["norm"] == "pre" else None

    def build(self, input_shape=None):
        for block in self.blocks:
            block.build()
        if self.final_norm:
            self.final_norm.build((None, None, self.blocks[0].d_model))

    def call(self, x, visible=None, memory=None, memory_visible=None, caches=None, place=0, positions=None, trace=None):
        """Send `x` (B, T, D) through every block; `caches` holds one cache a block, or is None.

        `memory` and `memory_visible` are for decoder blocks. Returns the output (B, T, D); with caches (output, list
        of the next ones).
        """
        options = {"visible": visible, "place": place, "positions": positions, "trace": trace}
        cross = {"memory": memory, "memory_visible": memory_visible}
        options |= {name: array for name, array in cross.items() if array is not None}
        if caches is None:
            for block in self.blocks:
                x = block(x, **options)
            return self._normalised(x)
        following = []
        for block, cache in zip(self.blocks, caches, strict=True):
            x, cache = block(x, cache=cache, **options)
            following.append(cache)
        return self._normalised(x), following

    def get_config(self):
        kind = keras.saving.get_registered_name(type(self.blocks[0]))
        return super().get_config() | {
            "block": kind, "num_layers": len(self.blocks), "options": self.blocks[0].arguments,
        }  # fmt: skip

    def _normalised(self, x):
        return self.final_norm(x) if self.final_norm else x
