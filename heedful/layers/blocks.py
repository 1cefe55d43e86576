"""The blocks of encoder and decoder, and the stacks of them.

Axes: B batch, T target length, S source length, D d_model.
"""

from typing import NamedTuple

import keras

from heedful.layers.attention import KeyValues, MultiHeadAttention
from heedful.layers.dropout import Dropout
from heedful.layers.feed_forward import FeedForward
from heedful.layers.norms import Norm

NORMS = ("post", "pre")


class DecoderCache(NamedTuple):
    """What a decoder block keeps between steps: its own past, and the memory projected once."""

    past: KeyValues
    memory: KeyValues


class Residual(keras.layers.Layer):
    """The residual connection and norm around a sublayer.

    `post` normalises the sum, as the paper does (section 3.1); `pre` normalises what the sublayer reads
    (Xiong et al. 2020), which trains without warm-up and needs one more norm after the last block.
    """

    def __init__(self, norm="post", dropout=0.0, new_norm=Norm(), **kwargs):  # noqa: B008 - it is frozen
        super().__init__(**kwargs)
        if norm not in NORMS:
            raise ValueError(f"Unknown norm {norm!r}: choose one of {', '.join(NORMS)}.")
        self.norm_first = norm == "pre"
        self.norm = new_norm("norm", self.dtype_policy)
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


class EncoderBlock(keras.layers.Layer):
    """Self-attention and feed-forward, each inside a residual connection (Vaswani et al. 2017, section 3.1).

    Args:
        d_model, num_heads, num_kv_heads, d_ff, activation: the sizes; see `MultiHeadAttention` and `FeedForward`.
        norm: `post` or `pre`.
        dropout: share of each sublayer's output dropped in training.
        attention_dropout: share of attention weights dropped in training.
        rotary: rotary positions in self-attention.
        bias: whether projections have one.
        new_norm: the `Norm` that makes the norms.
    """

    def __init__(
        self, d_model, num_heads, d_ff, *, num_kv_heads=None, activation="relu", norm="post", dropout=0.1,
        attention_dropout=0.0, rotary=False, bias=True, new_norm=Norm(), **kwargs,  # noqa: B008 - it is frozen
    ):  # fmt: skip
        super().__init__(**kwargs)
        self.d_model = d_model
        shared = {"bias": bias, "dtype": self.dtype_policy}
        heads = {"num_kv_heads": num_kv_heads, "dropout": attention_dropout} | shared
        residual = {"norm": norm, "dropout": dropout, "new_norm": new_norm, "dtype": self.dtype_policy}
        self.attention = MultiHeadAttention(d_model, num_heads, rotary=rotary, name="self_attention", **heads)
        self.attention_residual = Residual(name="self_attention_residual", **residual)
        self.feed_forward = FeedForward(d_model, d_ff, activation, name="feed_forward", **shared)
        self.feed_forward_residual = Residual(name="feed_forward_residual", **residual)

    def build(self, input_shape=None):
        for part in (self.attention, self.attention_residual, self.feed_forward, self.feed_forward_residual):
            part.build((None, None, self.d_model))

    def call(self, x, visible=None, cache=None, place=0, positions=None, trace=None):
        """Map `x` (B, S, D) to (B, S, D), and the cache (`KeyValues` or None) to its next state."""
        around = self.attention_residual
        attended, cache = self.attention(
            around.enter(x), visible=visible, cache=cache, place=place, positions=positions, trace=trace
        )
        x = around.leave(x, attended)
        around = self.feed_forward_residual
        return around.leave(x, self.feed_forward(around.enter(x))), cache


class DecoderBlock(EncoderBlock):
    """An encoder block with cross-attention to a memory between its two sublayers. Arguments as there."""

    def __init__(
        self, d_model, num_heads, d_ff, *, num_kv_heads=None, norm="post", dropout=0.1, attention_dropout=0.0,
        bias=True, new_norm=Norm(), **kwargs,  # noqa: B008 - it is frozen
    ):  # fmt: skip
        heads = {"num_kv_heads": num_kv_heads, "bias": bias}
        residual = {"norm": norm, "dropout": dropout, "new_norm": new_norm}
        super().__init__(d_model, num_heads, d_ff, attention_dropout=attention_dropout, **heads, **residual, **kwargs)
        own = {"dtype": self.dtype_policy}
        self.cross_attention = MultiHeadAttention(
            d_model, num_heads, cross=True, dropout=attention_dropout, name="cross_attention", **heads, **own
        )
        self.cross_residual = Residual(name="cross_attention_residual", **residual, **own)

    def build(self, input_shape=None):
        super().build(input_shape)
        self.cross_attention.build()
        self.cross_residual.build((None, None, self.d_model))

    def call(self, x, memory=None, visible=None, memory_visible=None, cache=None, place=0, positions=None, trace=None):
        """Map `x` (B, T, D) to (B, T, D), reading `memory` (B, S, D); the cache is a `DecoderCache` or None."""
        past, memory = (None, memory) if cache is None else cache
        around = self.attention_residual
        attended, past = self.attention(
            around.enter(x), visible=visible, cache=past, place=place, positions=positions, trace=trace
        )
        x = around.leave(x, attended)
        around = self.cross_residual
        attended, _ = self.cross_attention(around.enter(x), memory=memory, visible=memory_visible, trace=trace)
        x = around.leave(x, attended)
        around = self.feed_forward_residual
        x = around.leave(x, self.feed_forward(around.enter(x)))
        return x, None if cache is None else DecoderCache(past, memory)


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
        self.blocks = [block(**options, name=f"block_{i}", dtype=self.dtype_policy) for i in range(num_layers)]
        new_norm = options.get("new_norm", Norm())
        self.final_norm = new_norm("final_norm", self.dtype_policy) if options.get("norm") == "pre" else None

    def build(self, input_shape=None):
        for block in self.blocks:
            block.build()
        if self.final_norm:
            self.final_norm.build((None, None, self.blocks[0].d_model))

    def call(self, x, visible=None, memory=None, memory_visible=None, caches=None, place=0, positions=None, trace=None):
        """Send `x` (B, T, D) through every block; `caches` holds one cache a block, or is None.

        `memory` and `memory_visible` are for decoder blocks. Returns the output and the list of new caches.
        """
        cross = {} if memory_visible is None else {"memory": memory, "memory_visible": memory_visible}
        caches = caches or [None] * len(self.blocks)
        news = []
        for block, cache in zip(self.blocks, caches, strict=True):
            x, cache = block(x, visible=visible, cache=cache, place=place, positions=positions, trace=trace, **cross)
            news.append(cache)
        return (self.final_norm(x) if self.final_norm else x), news
