"""The decoder-only Transformer: a language model that continues text.

Axes: B batch, T length, S length of the prompts, K hypotheses, D d_model, V vocabulary.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from heedful.backend import Tensor
from heedful.core.special_tokens import PAD_ID
from heedful.layers import masks
from heedful.layers.blocks import EncoderBlock, Stack
from heedful.layers.cache import PrefixedCache
from heedful.layers.checks import check_ids
from heedful.layers.input_embedding import InputEmbedding
from heedful.layers.mask_layers import PaddingMask
from heedful.layers.trace import Trace
from heedful.models.base import Base, DecodeStep


class Prompt(NamedTuple):
    """Prefilled prompts; the first axis of each array is a multiple of B."""

    visible: Any  # (B, 1, 1, S)
    lengths: Any  # (B,)
    layers: Any  # the `KeyValueCache` of each block


@keras.saving.register_keras_serializable("heedful")
class CausalLM(Base):
    """Decoder-only Transformer (Radford et al. 2018), from ids to logits of the next token at every position.

    Encoder blocks with a causal mask. Call it with `{"ids": (B, T)}` or the ids alone, padded with 0 at the end. If
    several texts share a row, `segments` (B, T) numbers them, so that they cannot attend to each other, and `positions`
    (B, T) gives the position of each token in its text. The result is logits (B, T, V) with a Keras mask.

    Args:
        vocab_size: size of the vocabulary, padding included.
        architecture: keyword arguments, see `Architecture`; `tie` other than `none` shares embedding and output
            projection.
    """

    def __init__(self, vocab_size: int, **architecture: Any):
        super().__init__({"vocab_size": vocab_size}, **architecture)
        self.vocab_size = vocab_size
        policy = self.dtype_policy
        self.embedding, self.output_projection = self.new_tables(vocab_size)
        self.text_input = InputEmbedding(self.embedding, name="text_input", **self.input_options())
        blocks = self.architecture.block_options()
        self.decoder = Stack(EncoderBlock, self.only_depth, blocks, name="decoder", dtype=policy)
        self.attach_mask = PaddingMask(name="published_mask", dtype=policy)
        self.attach_mask.build((None, None, vocab_size))
        self.build()

    @property
    def parts(self) -> list[keras.Layer]:
        return [self.embedding, self.output_projection, self.text_input, self.decoder]

    def read_ids(self, inputs: Any) -> Tensor | None:
        return self.named(inputs)["ids"]

    def check(self, inputs: Any) -> None:
        check_ids(self.read_ids(inputs), self.vocab_size, causal=True)

    def call(self, inputs: Any, training: bool | None = None, trace: Trace | None = None) -> Tensor:
        """Return the logits (B, T, V) of the token after each position."""
        return self.attach_mask((self.project(self.features(inputs, training, trace)), self.read_ids(inputs)))

    def features(self, inputs: Any, training: bool | None = None, trace: Trace | None = None) -> Tensor:
        """Return the last block's output (B, T, D), from which `project` computes logits."""
        inputs = self.named(inputs)
        ids, segments, positions = inputs["ids"], inputs.get("segments"), inputs.get("positions")
        visible = self.causal_mask(ids)
        if segments is not None:
            visible = ops.logical_and(visible, masks.same_segment(segments))
        x = self.text_input(ids, positions=positions, training=training)
        return self.decoder(x, visible=visible, positions=positions, training=training, trace=trace)

    def project(self, features: Tensor) -> Tensor:
        """Return the logits (B, T, V) of features (B, T, D)."""
        return self.output_projection.project(features)

    def prefill(self, prompts: Tensor) -> Prompt:
        """Prefill prompts (B, S), padded with 0; return their `Prompt`. A prompt may be empty."""
        length = prompts.shape[1]
        real = ops.not_equal(prompts, PAD_ID)
        places = ops.arange(length)
        caches = self.empty_cache(ops.shape(prompts)[0], length)
        visible = masks.causal(places, places)
        _, caches = self.decoder(self.text_input(prompts), visible=visible, caches=caches, positions=places)
        return Prompt(real[:, None, None, :], ops.sum(ops.cast(real, "int32"), axis=1), caches)

    def empty_cache(self, batch_size: int, places: int) -> Any:
        """Return empty caches for `places` tokens of each text, one for each block."""
        return [block.attention.empty_cache(batch_size, places) for block in self.decoder.blocks]

    def decode_step(
        self,
        ids: Tensor,
        memory: Any,
        past: Any,
        *,
        place: Tensor,
        positions: Tensor,
        visible: Tensor,
        attention: bool = False,
    ) -> DecodeStep:
        """Run one decode step for K continuations of each prompt.

        For arguments and results see `Transformer.decode_step`. `positions` count from the end of the prompt, and
        `attention` must be False, since there is no source.
        """
        if attention:
            raise ValueError("A language model has no source to attend to.")
        # (B, 1), clipped because the age of idle slots grows without limit
        positions = ops.minimum(positions + memory.lengths[:, None], self.max_length - 1)
        caches = [PrefixedCache(*pair) for pair in zip(memory.layers, past, strict=True)]
        prompted = ops.broadcast_to(memory.visible, (*ops.shape(visible)[:3], memory.visible.shape[3]))
        visible = ops.concatenate([prompted, visible], axis=-1)
        x = self.text_input(ids, positions=positions)
        features, caches = self.decoder(x, visible=visible, caches=caches, place=place, positions=positions)
        return DecodeStep(self.project(features), [cache.past for cache in caches])
