"""The encoder-decoder Transformer of "Attention Is All You Need".

Axes: B batch, T target length, S source length, D d_model, V target vocabulary, L layers.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from heedful.layers import masks
from heedful.layers.blocks import DecoderBlock, DecoderCache, EncoderBlock, Stack
from heedful.layers.embeddings import TokenEmbedding
from heedful.layers.inputs import TextInput
from heedful.models.base import Base
from heedful.models.published import PublishedMask
from heedful.special_tokens import PAD_ID


class Memory(NamedTuple):
    """What the encoder leaves of each sentence for the decoder; the first axis of each array is a multiple of B."""

    visible: Any  # (B, 1, 1, S)
    layers: Any  # the `KeyValues` of one decoder block each


@keras.saving.register_keras_serializable("heedful")
class Transformer(Base):
    """Encoder-decoder Transformer (Vaswani et al. 2017): ids of two texts in, logits of the next target token out.

    Call it with `{"source": (B, S), "target": (B, T)}` or `(source, target)`, integer ids with 0 for padding at the
    end; the target is what the decoder has read so far, beginning with the start token. Returns logits (B, T, V).
    Several pairs may share a row: `source_segments` and `target_segments`, of the shapes of the ids, number the pairs
    of a row, which then cannot see each other, and `source_positions` and `target_positions` say where in its text
    each token stands.
    The logits carry a Keras mask, so losses and weighted metrics of Keras leave padding out by themselves.

    Args:
        source_vocab_size, target_vocab_size: sizes of the vocabularies, padding included.
        architecture: keyword arguments, see `Architecture`: `num_layers`, `d_model`, `num_heads`, `d_ff`, ...
    """

    def __init__(self, source_vocab_size, target_vocab_size, **architecture):
        super().__init__(
            {"source_vocab_size": source_vocab_size, "target_vocab_size": target_vocab_size}, **architecture
        )
        self.source_vocab_size, self.target_vocab_size = source_vocab_size, target_vocab_size
        chosen, policy = self.architecture, self.dtype_policy
        if chosen.tie == "all" and source_vocab_size != target_vocab_size:
            raise ValueError(
                f"tie='all' shares one table, but the vocabularies have {source_vocab_size} and {target_vocab_size} "
                "entries: use a joint tokenizer or tie='target'."
            )

        def new_table(size, name, **more):
            return TokenEmbedding(size, self.d_model, chosen.embedding_scale, name=name, dtype=policy, **more)

        untied = chosen.tie == "none"
        bias = {"bias": chosen.output_bias}
        self.target_embedding = new_table(target_vocab_size, "target_embedding", **({} if untied else bias))
        self.source_embedding = self.target_embedding
        if chosen.tie != "all":
            self.source_embedding = new_table(source_vocab_size, "source_embedding")
        self.output_projection = self.target_embedding
        if untied:
            self.output_projection = new_table(target_vocab_size, "output_projection", **bias)
        self.source_input = TextInput(self.source_embedding, name="source_input", **self.input_options())
        self.target_input = TextInput(self.target_embedding, name="target_input", **self.input_options())
        self.encoder = Stack(EncoderBlock, self.num_layers, self.block_options(), name="encoder", dtype=policy)
        self.decoder = Stack(DecoderBlock, self.num_layers, self.block_options(), name="decoder", dtype=policy)
        self.publish = PublishedMask(name="published_mask", dtype=policy)
        self.build()

    @property
    def parts(self):
        tables = self.source_embedding, self.target_embedding, self.output_projection
        return [*tables, self.source_input, self.target_input, self.encoder, self.decoder]

    def call(self, inputs, training=None, trace=None):
        """Return the logits (B, T, V) of the token after each target position."""
        logits = self.project(self.features(inputs, training, trace))
        return self.publish((logits, _unpack(inputs)[1]))

    def features(self, inputs, training=None, trace=None):
        """Return the decoder's output (B, T, D), from which `project` makes logits.

        `training` is handed on by name to every layer of the model: on JAX `fit` calls `call` itself, and they find no
        context from which they could learn it. Dropout would then be off, silently.
        """
        source, target = _unpack(inputs)
        reading, writing = (_packing(inputs, side) for side in ("source", "target"))
        memory, memory_visible = self.encode(source, training, trace, *reading)
        if reading.segments is not None:
            memory_visible = masks.of_segments(writing.segments, reading.segments)
        return self.decode(target, memory, memory_visible, training, trace, *writing)

    def project(self, features):
        """Score the target vocabulary: (B, T, D) -> (B, T, V)."""
        return self.output_projection.project(features)

    def encode(self, source, training=None, trace=None, segments=None, positions=None):
        """Read source ids (B, S); return the memory (B, S, D) and which of it is visible (B, 1, 1 or S, S)."""
        training = training if self.encoder.trainable else False  # what does not learn needs no dropout
        visible = masks.of_padding(ops.not_equal(source, PAD_ID)) if segments is None else masks.of_segments(segments)
        x = self.source_input(source, positions=positions, training=training)
        memory = self.encoder(x, visible=visible, positions=positions, training=training, trace=trace)
        return memory, visible

    def decode(self, target, memory, memory_visible, training=None, trace=None, segments=None, positions=None):
        """Read target ids (B, T), each position seeing those before it; return features (B, T, D)."""
        places = ops.arange(ops.shape(target)[1])
        x = self.target_input(target, positions=positions, training=training)
        visible = masks.of_future(places, places)
        if segments is not None:
            visible = ops.logical_and(visible, masks.of_segments(segments))
        options = {"memory_visible": memory_visible, "training": training, "trace": trace}
        return self.decoder(x, memory=memory, visible=visible, positions=positions, **options)

    def freeze(self):
        """Let the source side learn no more: its embedding and the encoder. The target must not share its table."""
        for part in (self.source_embedding, self.source_input, self.encoder):
            part.trainable = False

    def begin(self, source):
        """Read source ids (B, S) for generation; return their `Memory`."""
        memory, visible = self.encode(source)
        return Memory(visible, [block.cross_attention.project_memory(memory) for block in self.decoder.blocks])

    def room(self, batch_size, places):
        """Return empty caches with room for `places` tokens of each sentence."""
        return [block.attention.empty_cache(batch_size, places) for block in self.decoder.blocks]

    def step(self, ids, memory, past, *, place, positions, visible, trace=None):
        """Read one more id of each of K hypotheses of a sentence; score what may come next.

        The hypotheses of a sentence are queries side by side: they share its memory and its cache, and `visible` says
        which of the cached tokens belong to whose past. Nothing is copied when hypotheses part or end.

        Args:
            ids: (B, K).
            memory: the sentences' `Memory`.
            past: caches from `room`, or from the step before.
            place: where in the caches the K new tokens are stored.
            positions: of the new tokens in their sentences, (1,) or (B, 1).
            visible: (B, 1, K, places), True at a hypothesis' own past, the new token included.
            trace: a `Trace`, or None.

        Returns:
            Logits (B, K, V) and the new caches.
        """
        x = self.target_input(ids, positions=positions)
        caches = [DecoderCache(*pair) for pair in zip(past, memory.layers, strict=True)]
        features, caches = self.decoder(
            x, visible=visible, memory_visible=memory.visible, caches=caches, place=place, positions=positions,
            trace=trace,
        )  # fmt: skip
        return self.project(features), [cache.past for cache in caches]


class Packing(NamedTuple):
    """Which texts share a row, and where in its text each token stands; None where each text has its own."""

    segments: Any = None
    positions: Any = None


def _packing(inputs, side):
    """Return the `Packing` of a side."""
    if not isinstance(inputs, dict) or f"{side}_segments" not in inputs:
        return Packing()
    return Packing(inputs[f"{side}_segments"], inputs[f"{side}_positions"])


def _unpack(inputs):
    if isinstance(inputs, dict):
        return inputs["source"], inputs["target"]
    source, target = inputs
    return source, target
