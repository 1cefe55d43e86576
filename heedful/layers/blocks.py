"""Encoder and decoder blocks, and stacks of them.

Axes: B batch, T target length, S source length, D d_model.
"""

import dataclasses
from typing import Any, NamedTuple

import keras

from heedful.backend import Shape, Tensor
from heedful.config.architecture import BlockOptions
from heedful.layers.attention import MultiHeadAttention
from heedful.layers.feed_forward import FeedForward
from heedful.layers.norms import Norm
from heedful.layers.residual import Residual
from heedful.layers.same_shape import SameShape
from heedful.layers.trace import Trace


class DecoderCache(NamedTuple):
    """The cache of a decoder block: keys and values of the target so far, and of the memory."""

    past: Any
    memory: Any


@keras.saving.register_keras_serializable("heedful")
class EncoderBlock(SameShape):
    """Self-attention and feed-forward, each inside a residual connection (Vaswani et al. 2017, section 3.1).

    Args:
        d_model, num_heads, d_ff: sizes, see `heedful.config.architecture.BlockOptions`.
        causal: whether self-attention hides the tokens after each position.
        rotary: whether self-attention has rotary positions, see `MultiHeadAttention`.
        options: the other fields of `BlockOptions`: `num_kv_heads`, `head_dim`, `attention_projections`, `qk_norm`,
            `activation`, `norm_position`, `norm`, `norm_epsilon`, `residual_init`, `bias`, `rotary_base`, `dropout`,
            `attention_dropout`, `feed_forward_dropout` and `layer_dropout`; and the arguments of every Keras layer.
    """

    def __init__(
        self, d_model: int, num_heads: int, d_ff: int, *, causal: bool = False, rotary: bool = False, **options: Any
    ):
        names = {one.name for one in dataclasses.fields(BlockOptions)} & options.keys()
        block_options = {name: options.pop(name) for name in names}
        super().__init__(**options)
        self.options = block = BlockOptions(d_model=d_model, num_heads=num_heads, d_ff=d_ff, **block_options)
        self.d_model, self.causal, self.rotary = d_model, causal, rotary
        self.supports_masking = True
        self.attention = self._attention(
            "self_attention", causal=causal, rotary=rotary, rotary_base=self.options.rotary_base
        )
        self.attention_residual = self._residual("self_attention_residual")
        self.feed_forward = FeedForward(
            d_model, d_ff, block.activation, block.bias, block.feed_forward_dropout, residual_init=block.residual_init,
            name="feed_forward", dtype=self.dtype_policy,
        )  # fmt: skip
        self.feed_forward_residual = self._residual("feed_forward_residual")

    def build(self, input_shape: Shape | None = None) -> None:
        for part in (self.attention, self.attention_residual, self.feed_forward, self.feed_forward_residual):
            part.build((None, None, self.d_model))

    def call(
        self,
        x: Tensor,
        visible: Tensor | None = None,
        cache: Any = None,
        place: Tensor = 0,
        positions: Tensor | None = None,
        trace: Trace | None = None,
    ) -> Any:
        """Map `x` (B, T, D) to (B, T, D). For the other arguments see `MultiHeadAttention`.

        Returns:
            The output; with `cache`, a pair (output, updated cache).
        """
        x, cache = self._attend(x, visible, cache, place, positions, trace)
        x = self._feed_forward(x, trace)
        return x if cache is None else (x, cache)

    def _attend(
        self, x: Tensor, visible: Tensor, cache: Any, place: Tensor, positions: Tensor, trace: Trace | None
    ) -> tuple[Tensor, Any]:
        """Apply self-attention with its residual connection; return x and the updated cache (None without a cache)."""
        residual, options = self.attention_residual, {"place": place, "positions": positions, "trace": trace}
        attended = self.attention(residual.before(x), visible=visible, cache=cache, **options)
        attended, cache = (attended, None) if cache is None else attended
        return residual.after(x, attended), cache

    def _feed_forward(self, x: Tensor, trace: Trace | None) -> Tensor:
        """Apply the feed-forward network with its residual connection."""
        residual = self.feed_forward_residual
        x = residual.after(x, self.feed_forward(residual.before(x)))
        if trace is not None:
            trace.record("output", self, x)
        return x

    def _attention(self, name: str, **kind: Any) -> MultiHeadAttention:
        """Return attention with the options of the block; `kind`: whether it is causal, cross-attention, rotary."""
        block = self.options
        return MultiHeadAttention(
            block.d_model, block.num_heads, block.num_kv_heads, head_dim=block.head_dim, bias=block.bias,
            qk_norm=block.qk_norm, norm_epsilon=block.norm_epsilon, residual_init=block.residual_init,
            projections=block.attention_projections, dropout=block.attention_dropout, name=name,
            dtype=self.dtype_policy, **kind,
        )  # fmt: skip

    def _residual(self, name: str) -> Residual:
        block = self.options
        return Residual(
            norm_position=block.norm_position, dropout=block.dropout, norm=block.norm, norm_epsilon=block.norm_epsilon,
            bias=block.bias, layer_dropout=block.layer_dropout, name=name, dtype=self.dtype_policy,
        )  # fmt: skip

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of the constructor, without those of every Keras layer."""
        return dataclasses.asdict(self.options) | {"causal": self.causal, "rotary": self.rotary}

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | self.arguments


@keras.saving.register_keras_serializable("heedful")
class DecoderBlock(EncoderBlock):
    """An encoder block with cross-attention between its two sublayers. For the arguments see `EncoderBlock`."""

    def __init__(self, d_model: int, num_heads: int, d_ff: int, **kwargs: Any):
        super().__init__(d_model, num_heads, d_ff, **kwargs)
        self.cross_attention = self._attention("cross_attention", cross=True)
        self.cross_residual = self._residual("cross_attention_residual")

    def build(self, input_shape: Shape | None = None) -> None:
        super().build(input_shape)
        self.cross_attention.build()
        self.cross_residual.build((None, None, self.d_model))

    def call(  # type: ignore[override]
        self,
        x: Tensor,
        memory: Tensor | None = None,
        visible: Tensor | None = None,
        memory_visible: Tensor | None = None,
        cache: Any = None,
        place: Tensor = 0,
        positions: Tensor | None = None,
        trace: Trace | None = None,
    ) -> Any:
        """Map `x` (B, T, D) and `memory` (B, S, D) to (B, T, D); with `cache`, return (output, updated cache)."""
        past, memory = (None, memory) if cache is None else cache
        x, past = self._attend(x, visible, past, place, positions, trace)
        residual = self.cross_residual
        attended = self.cross_attention(residual.before(x), memory=memory, visible=memory_visible, trace=trace)
        x = self._feed_forward(residual.after(x, attended), trace)
        return x if cache is None else (x, DecoderCache(past, memory))


@keras.saving.register_keras_serializable("heedful")
class Stack(keras.layers.Layer):
    """A stack of identical blocks, with the final norm that `pre` requires.

    Args:
        block: `EncoderBlock` or `DecoderBlock`.
        num_layers: number of blocks.
        options: keyword arguments of each block.
    """

    def __init__(self, block: type["EncoderBlock"], num_layers: int, options: dict[str, Any], **kwargs: Any):
        super().__init__(**kwargs)
        self.supports_masking = True
        if num_layers < 1:
            raise ValueError(f"num_layers ({num_layers}) must be at least 1.")
        block = keras.saving.get_registered_object(block) if isinstance(block, str) else block  # from a config
        self.blocks = [block(**options, name=f"block_{i}", dtype=self.dtype_policy) for i in range(num_layers)]
        first = self.blocks[0].options
        new_norm = Norm(first.norm, first.norm_epsilon, first.bias)
        self.final_norm = new_norm("final_norm", self.dtype_policy) if first.norm_position == "pre" else None

    def build(self, input_shape: Shape | None = None) -> None:
        for block in self.blocks:
            block.build((None, None, self.blocks[0].d_model))
        if self.final_norm:
            self.final_norm.build((None, None, self.blocks[0].d_model))

    def call(
        self,
        x: Tensor,
        visible: Tensor | None = None,
        memory: Tensor | None = None,
        memory_visible: Tensor | None = None,
        caches: Any = None,
        place: Tensor = 0,
        positions: Tensor | None = None,
        trace: Trace | None = None,
    ) -> Any:
        """Apply all blocks to `x` (B, T, D).

        Args:
            memory, memory_visible: for decoder blocks.
            caches: one for each block, or None.
            visible, place, positions, trace: passed to every block.

        Returns:
            The output (B, T, D); with `caches`, a pair (output, list of updated caches).
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

    def compute_output_shape(self, input_shape: Shape, *others: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        block = keras.saving.get_registered_name(type(self.blocks[0]))
        arguments = {"block": block, "num_layers": len(self.blocks), "options": self.blocks[0].arguments}
        return super().get_config() | arguments

    def _normalised(self, x: Tensor) -> Tensor:
        return self.final_norm(x) if self.final_norm else x
