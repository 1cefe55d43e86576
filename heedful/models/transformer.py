"""The encoder-decoder Transformer of "Attention Is All You Need".

Axes: B batch, T target length, S source length, D d_model, V target vocabulary, L layers.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from heedful.backend import Tensor
from heedful.core.special_tokens import PAD_ID
from heedful.layers import masks
from heedful.layers.blocks import DecoderBlock, DecoderCache, EncoderBlock, Stack
from heedful.layers.checks import check_ids
from heedful.layers.embeddings import TokenEmbedding
from heedful.layers.input_embedding import InputEmbedding
from heedful.layers.mask_layers import PaddingMask
from heedful.layers.trace import Trace, path_in_model
from heedful.models.base import Base, DecodeStep


class Memory(NamedTuple):
    """Encoded sources, projected for the decoder; the first axis of each array is a multiple of B."""

    visible: Any  # (B, 1, 1, S)
    layers: Any  # for each decoder block the `KeyValueCache` of the projected memory


@keras.saving.register_keras_serializable("heedful")
class Transformer(Base):
    """Encoder-decoder Transformer (Vaswani et al. 2017), from source and target ids to logits of the next target token.

    Call it with `{"source": (B, S), "target": (B, T)}` or `(source, target)`: integer ids, padded with 0 at the end.
    The target begins with the start token. The result is logits (B, T, V). They carry a Keras mask, so Keras'
    losses and weighted metrics ignore padding.

    Several pairs may share a row. `source_segments` and `target_segments`, shaped like the ids, then number the
    pairs of a row, so that they cannot attend to each other. `source_positions` and `target_positions` give the
    position of each token in its text; without them it is its place in the row.

    Args:
        source_vocab_size, target_vocab_size: sizes of the vocabularies, padding included.
        architecture: keyword arguments, see `Architecture`: `num_layers`, `d_model`, `num_heads`, `d_ff`, ...
    """

    def __init__(self, source_vocab_size: int, target_vocab_size: int, **architecture: Any):
        super().__init__(
            {"source_vocab_size": source_vocab_size, "target_vocab_size": target_vocab_size}, **architecture
        )
        self.source_vocab_size, self.target_vocab_size = source_vocab_size, target_vocab_size
        chosen, policy = self.architecture, self.dtype_policy
        one_input = chosen.tie in ("inputs", "all")
        if one_input and source_vocab_size != target_vocab_size:
            raise ValueError(
                f"tie={chosen.tie!r} shares one table, but the vocabularies have {source_vocab_size} and "
                f"{target_vocab_size} entries: use a joint tokenizer or tie='target'."
            )

        def new_table(size: int, name: str, **more: Any) -> TokenEmbedding:
            options = {"scale": chosen.embedding_scale, "std": chosen.embedding_std, "dtype": policy} | more
            return TokenEmbedding(size, self.d_model, name=name, **options)

        untied = chosen.tie in ("none", "inputs")
        bias = {"bias": chosen.output_bias}
        start = {"zero_start": chosen.start_vector == "zero"}
        self.target_embedding = new_table(target_vocab_size, "target_embedding", **start, **({} if untied else bias))
        self.source_embedding = self.target_embedding
        if not one_input:
            self.source_embedding = new_table(source_vocab_size, "source_embedding")
        self.output_projection = self.target_embedding
        if untied:
            self.output_projection = new_table(target_vocab_size, "output_projection", **bias)
        self.source_input = InputEmbedding(self.source_embedding, name="source_input", **self.input_options())
        self.target_input = InputEmbedding(self.target_embedding, name="target_input", **self.input_options())
        blocks = self.architecture.block_options()
        self.encoder = Stack(EncoderBlock, chosen.depths["encoder"], blocks, name="encoder", dtype=policy)
        self.decoder = Stack(DecoderBlock, chosen.depths["decoder"], blocks, name="decoder", dtype=policy)
        self.attach_mask = PaddingMask(name="published_mask", dtype=policy)
        self.attach_mask.build((None, None, target_vocab_size))
        self.build()

    @property
    def parts(self) -> list[keras.Layer]:
        tables = self.source_embedding, self.target_embedding, self.output_projection
        return [*tables, self.source_input, self.target_input, self.encoder, self.decoder]

    def read_ids(self, inputs: Any) -> Tensor | None:
        return _unpack(inputs)[1]

    def check(self, inputs: Any) -> None:
        source, target = _unpack(inputs)
        check_ids(source, self.source_vocab_size, "source ids")
        check_ids(target, self.target_vocab_size, "target ids", causal=True)

    @property
    def input_signature(self) -> list[Any]:
        return [{side: keras.InputSpec(shape=(None, None), dtype="int32", name=side) for side in ("source", "target")}]

    def call(self, inputs: Any, training: bool | None = None, trace: Trace | None = None) -> Tensor:
        """Return the logits (B, T, V) of the token after each target position."""
        logits = self.project(self.features(inputs, training, trace))
        return self.attach_mask((logits, _unpack(inputs)[1]))

    def features(self, inputs: Any, training: bool | None = None, trace: Trace | None = None) -> Tensor:
        """Return the decoder's output (B, T, D), from which `project` computes logits."""
        # Pass `training` to the outermost layers explicitly. On JAX `fit` runs `call` without the Keras call context
        # from which layers would otherwise take it, and dropout would silently be off.
        source, target = _unpack(inputs)
        source_packing, target_packing = (_packing(inputs, side) for side in ("source", "target"))
        if (source_packing.segments is None) != (target_packing.segments is None):
            raise ValueError("Texts that share a row need both source_segments and target_segments.")
        memory, memory_visible = self.encode(source, training, trace, *source_packing)
        if source_packing.segments is not None:
            memory_visible = masks.same_segment(target_packing.segments, source_packing.segments)
        return self.decode(target, memory, memory_visible, training, trace, *target_packing)

    def project(self, features: Tensor) -> Tensor:
        """Return the logits (B, T, V) of features (B, T, D)."""
        return self.output_projection.project(features)

    def encode(
        self,
        source: Tensor,
        training: bool | None = None,
        trace: Trace | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Encode source ids (B, S); return the memory (B, S, D) and its mask (B, 1, 1 or S, S)."""
        training = training if self.encoder.trainable else False  # a frozen encoder has no dropout
        visible = masks.padding(ops.not_equal(source, PAD_ID)) if segments is None else masks.same_segment(segments)
        x = self.source_input(source, positions=positions, training=training)
        memory = self.encoder(x, visible=visible, positions=positions, training=training, trace=trace)
        return memory, visible

    def decode(
        self,
        target: Tensor,
        memory: Any,
        memory_visible: Tensor,
        training: bool | None = None,
        trace: Trace | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Decode target ids (B, T) with a causal mask; return features (B, T, D)."""
        x = self.target_input(target, positions=positions, training=training)
        visible = self.causal_mask(target)
        if segments is not None:
            visible = ops.logical_and(visible, masks.same_segment(segments))
        options = {"memory_visible": memory_visible, "training": training, "trace": trace}
        return self.decoder(x, memory=memory, visible=visible, positions=positions, **options)

    def freeze(self) -> None:
        """Freeze the source side: its embedding and the encoder. The target must not share its table."""
        for part in (self.source_embedding, self.source_input, self.encoder):
            part.trainable = False

    def prefill(self, source: Tensor) -> Any:
        """Encode source ids (B, S) for generation; return their `Memory`."""
        memory, visible = self.encode(source)
        return Memory(visible, [block.cross_attention.project_memory(memory) for block in self.decoder.blocks])

    def empty_cache(self, batch_size: int, places: int) -> Any:
        """Return empty caches for `places` tokens of each sentence, one for each decoder block."""
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
        """Run one decode step: read one id of each of K hypotheses per sentence, and score the next tokens.

        The K hypotheses of a sentence are K queries that share its memory and its cache. `visible` selects the cached
        tokens of each hypothesis, so nothing is copied when hypotheses branch or end.

        Args:
            ids: (B, K).
            memory: the sentences' `Memory`.
            past: caches from `empty_cache` or from the previous step.
            place: cache index at which the K new tokens are stored.
            positions: positions of the new tokens in their sentences, (1,) or (B, 1).
            visible: (B, 1, K, places), True at the hypothesis' own tokens, the new one included.
            attention: whether to return the attention to the source too.

        Returns:
            A `DecodeStep`.
        """
        trace = Trace() if attention else None
        x = self.target_input(ids, positions=positions)
        caches = [DecoderCache(*pair) for pair in zip(past, memory.layers, strict=True)]
        features, caches = self.decoder(
            x, visible=visible, memory_visible=memory.visible, caches=caches, place=place, positions=positions,
            trace=trace,
        )  # fmt: skip
        read = None
        if trace is not None:  # mean over the heads of the last block
            read = ops.mean(trace[path_in_model(self.decoder.blocks[-1].cross_attention)], axis=1)
        return DecodeStep(self.project(features), [cache.past for cache in caches], read)


class Packing(NamedTuple):
    """Texts that share a row: the segment and the position of each token; None where each text has its own row."""

    segments: Any = None
    positions: Any = None


def _packing(inputs: Any, side: str) -> Packing:
    """Return the `Packing` of a side."""
    if not isinstance(inputs, dict):
        return Packing()
    return Packing(inputs.get(f"{side}_segments"), inputs.get(f"{side}_positions"))


def _unpack(inputs: Any) -> tuple[Tensor, Tensor]:
    if isinstance(inputs, dict):
        return inputs["source"], inputs["target"]
    source, target = inputs
    return source, target
