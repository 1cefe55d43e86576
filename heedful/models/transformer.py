"""The encoder-decoder Transformer of "Attention Is All You Need".

Axes: B batch, T target length, S source length, D d_model, V target vocabulary, L layers.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from heedful.layers import masks
from heedful.layers.blocks import DecoderBlock, DecoderCache, EncoderBlock, Stack, layer_norm
from heedful.layers.dropout import dropout as new_dropout
from heedful.layers.embeddings import TokenEmbedding
from heedful.layers.positions import LearnedPositions, SinusoidalPositions

POSITIONS = ("sinusoidal", "sinusoidal_concatenated", "learned", "rotary")
TIES = ("none", "target", "all")
PAD_ID = 0


class Memory(NamedTuple):
    """What the encoder leaves of each sentence for the decoder; the first axis of every array is B."""

    visible: Any  # (B, 1, 1, S)
    layers: Any  # the `KeyValues` of one decoder block each


class PublishedMask(keras.layers.Layer):
    """Give logits (B, T, V) the mask that Keras' losses and metrics look for: real where the target (B, T) is.

    A layer of its own, because on JAX `fit` runs a model's `call` without asking the model for its mask.
    """

    def call(self, inputs):
        return inputs[0]

    def compute_mask(self, inputs, previous_mask=None):
        return ops.not_equal(inputs[1], PAD_ID)


@keras.saving.register_keras_serializable("heedful")
class Transformer(keras.Model):
    """Encoder-decoder Transformer (Vaswani et al. 2017): ids of two texts in, logits of the next target token out.

    Call it with `{"source": (B, S), "target": (B, T)}` or `(source, target)`, integer ids with 0 for padding at the
    end; the target is what the decoder has read so far, beginning with the start token. Returns logits (B, T, V).
    The logits carry a Keras mask, so losses and weighted metrics of Keras leave padding out by themselves.

    Args:
        source_vocab_size, target_vocab_size: sizes of the vocabularies, padding included.
        num_layers: blocks in the encoder and in the decoder; the paper's base model has 6.
        d_model: width of every vector.
        num_heads: attention heads; must divide `d_model`.
        d_ff: inner width of the feed-forward networks.
        num_kv_heads: key and value heads; must divide `num_heads` (default: as many).
        activation: `relu`, `gelu`, `geglu` or `swiglu`.
        norm: `post` as in the paper, or `pre`.
        positions: `sinusoidal` (interleaved, as in the paper), `sinusoidal_concatenated` (TensorFlow tutorial),
            `learned` or `rotary`.
        embedding_norm: normalise the embeddings before the first block.
        tie: `none`; `target`: target embedding = output projection; `all`: the source embedding too (one vocabulary).
        dropout: on embeddings and on each sublayer's output.
        attention_dropout: on attention weights.
        max_length: longest source or target; a limit for learned positions and for generation only.
    """

    def __init__(
        self, source_vocab_size, target_vocab_size, *, num_layers=6, d_model=512, num_heads=8, d_ff=2048,
        num_kv_heads=None, activation="relu", norm="post", positions="sinusoidal", embedding_norm=False, tie="target",
        dropout=0.1, attention_dropout=0.0, max_length=256, **kwargs,
    ):  # fmt: skip
        super().__init__(**kwargs)
        self._settings = {
            "source_vocab_size": source_vocab_size, "target_vocab_size": target_vocab_size, "num_layers": num_layers,
            "d_model": d_model, "num_heads": num_heads, "d_ff": d_ff, "num_kv_heads": num_kv_heads,
            "activation": activation, "norm": norm, "positions": positions, "embedding_norm": embedding_norm,
            "tie": tie, "dropout": dropout, "attention_dropout": attention_dropout, "max_length": max_length,
        }  # fmt: skip
        _check_choice("positions", positions, POSITIONS)
        _check_choice("tie", tie, TIES)
        if tie == "all" and source_vocab_size != target_vocab_size:
            raise ValueError(
                f"tie='all' shares one table, but the vocabularies have {source_vocab_size} and {target_vocab_size} "
                "entries: use a joint tokenizer or tie='target'."
            )
        self.d_model, self.num_layers, self.max_length = d_model, num_layers, max_length
        block = {
            "d_model": d_model, "num_heads": num_heads, "d_ff": d_ff, "num_kv_heads": num_kv_heads,
            "activation": activation, "norm": norm, "dropout": dropout, "attention_dropout": attention_dropout,
            "rotary": positions == "rotary",
        }  # fmt: skip
        policy = self.dtype_policy
        self.target_embedding = TokenEmbedding(target_vocab_size, d_model, name="target_embedding", dtype=policy)
        self.source_embedding = self.target_embedding
        if tie != "all":
            self.source_embedding = TokenEmbedding(source_vocab_size, d_model, name="source_embedding", dtype=policy)
        self.output_projection = self.target_embedding
        if tie == "none":
            self.output_projection = TokenEmbedding(target_vocab_size, d_model, name="output_projection", dtype=policy)
        self.source_positions = self._make_positions(positions, "source_positions")
        self.target_positions = self._make_positions(positions, "target_positions")
        self.source_norm = layer_norm("source_norm", policy) if embedding_norm else None
        self.target_norm = layer_norm("target_norm", policy) if embedding_norm else None
        self.source_dropout = new_dropout(dropout, "source_dropout", policy)
        self.target_dropout = new_dropout(dropout, "target_dropout", policy)
        self.encoder = Stack(EncoderBlock, num_layers, block, name="encoder", dtype=policy)
        self.decoder = Stack(DecoderBlock, num_layers, block, name="decoder", dtype=policy)
        self.publish = PublishedMask(name="published_mask", dtype=policy)
        self.build()

    def build(self, input_shape=None):
        """Create every weight; all sizes are known beforehand, so nobody has to call this."""
        width = (None, None, self.d_model)
        parts = (self.source_embedding, self.target_embedding, self.output_projection, self.source_positions,
                 self.target_positions, self.source_norm, self.target_norm, self.encoder, self.decoder)  # fmt: skip
        for part in parts:
            if part is not None and not part.built:
                part.build(width)
        self.built = True

    def call(self, inputs, training=None, trace=None):
        """Return the logits (B, T, V) of the token after each target position."""
        logits = self.project(self.features(inputs, training, trace))
        return self.publish((logits, _unpack(inputs)[1]))

    def features(self, inputs, training=None, trace=None):
        """Return the decoder's output (B, T, D), from which `project` makes logits.

        `training` is handed down by name all the way: on JAX `fit` calls `call` itself, and layers find no context
        from which they could learn it. Dropout would then be off, silently.
        """
        source, target = _unpack(inputs)
        memory, memory_visible = self.encode(source, training, trace)
        return self.decode(target, memory, memory_visible, training, trace)

    def project(self, features):
        """Score the target vocabulary: (B, T, D) -> (B, T, V)."""
        return self.output_projection.project(features)

    def encode(self, source, training=None, trace=None):
        """Read source ids (B, S); return the memory (B, S, D) and which of it is visible (B, 1, 1, S)."""
        visible = masks.of_padding(ops.not_equal(source, PAD_ID))
        parts = self.source_embedding, self.source_positions, self.source_norm, self.source_dropout
        x = _embed(source, *parts, training=training)
        memory, _ = self.encoder(x, visible=visible, training=training, trace=trace)
        return memory, visible

    def decode(self, target, memory, memory_visible, training=None, trace=None):
        """Read target ids (B, T), each position seeing those before it; return features (B, T, D)."""
        positions = ops.arange(ops.shape(target)[1])
        parts = self.target_embedding, self.target_positions, self.target_norm, self.target_dropout
        x = _embed(target, *parts, training=training)
        visible = masks.of_future(positions, positions)
        options = {"memory_visible": memory_visible, "training": training, "trace": trace}
        return self.decoder(x, memory=memory, visible=visible, **options)[0]

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
        parts = self.target_embedding, self.target_positions, self.target_norm, self.target_dropout
        x = _embed(ids, *parts, positions=positions)
        caches = [DecoderCache(*pair) for pair in zip(past, memory.layers, strict=True)]
        features, caches = self.decoder(
            x, visible=visible, memory_visible=memory.visible, caches=caches, place=place, positions=positions,
            trace=trace,
        )  # fmt: skip
        return self.project(features), [cache.past for cache in caches]

    def get_config(self):
        return super().get_config() | self._settings

    def build_from_config(self, config):
        """Nothing to do: the constructor has built everything."""

    def _make_positions(self, kind, name):
        if kind == "rotary":
            return None
        if kind == "learned":
            return LearnedPositions(self.d_model, self.max_length, name=name, dtype=self.dtype_policy)
        concatenated = kind == "sinusoidal_concatenated"
        return SinusoidalPositions(self.d_model, concatenated, name=name, dtype=self.dtype_policy)


def _embed(ids, embedding, encode_positions, norm, dropout, positions=None, training=None):
    x = embedding(ids)
    if encode_positions is not None:
        x = encode_positions(x, positions=positions)
    return dropout(norm(x) if norm else x, training=training)


def _unpack(inputs):
    if isinstance(inputs, dict):
        return inputs["source"], inputs["target"]
    source, target = inputs
    return source, target


def _check_choice(name, value, choices):
    if value not in choices:
        raise ValueError(f"Unknown {name} {value!r}: choose one of {', '.join(choices)}.")
