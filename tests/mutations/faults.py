"""Faults as people plant them in Transformers, one patch of our own code each, with the check that must find it.

A fault is a function of pytest's `monkeypatch`; its docstring says what went wrong.
"""

import keras
from keras import ops

from heedful.data import examples, masking
from heedful.generation import search, strategies
from heedful.layers import attention, blocks, inputs, masks
from heedful.models import causal_lm, masked_lm, transformer
from heedful.training import loss, objective, optimizer

FAULTS = []


def fault(check, task="translate", **options):
    """Register a fault that `check` must find in a run of `task` with these options of the model or the training."""

    def register(plant):
        FAULTS.append((plant, check, task, options))
        return plant

    return register


def wrap(monkeypatch, owner, name, change):
    """Replace `owner.name` by `change(original)`; static methods are given as plain functions."""
    monkeypatch.setattr(owner, name, change(getattr(owner, name)))


@fault("future")
@fault("future", "generate")
def causal_mask_dropped(monkeypatch):
    """Every position of the target sees all others."""
    wrap(monkeypatch, masks, "of_future", lambda original: lambda *args: ops.ones_like(original(*args)))


@fault("future")
@fault("future", "generate", positions="rotary")
def causal_mask_one_too_far(monkeypatch):
    """Each position sees the one behind it, whose token it is to say."""
    wrap(monkeypatch, masks, "of_future", lambda original: lambda query, keys: original(query + 1, keys))


@fault("padding")
@fault("padding", "fill")
@fault("padding", "classify")
def padding_mask_ignored(monkeypatch):
    """Padding is read like text."""
    wrap(monkeypatch, masks, "of_padding", lambda original: lambda valid: ops.ones_like(original(valid)))


@fault("padding")
def padding_of_the_source_is_seen_by_the_target(monkeypatch):
    """The encoder hides padding, cross-attention does not."""

    def change(original):
        def encode(self, *args):
            memory, visible = original(self, *args)
            return memory, ops.ones_like(visible)

        return encode

    wrap(monkeypatch, transformer.Transformer, "encode", change)


@fault("padding", "classify")
def mean_over_padding(monkeypatch):
    """The vector of a text is the mean of its tokens' and its padding's."""
    monkeypatch.setattr(masked_lm.TextEncoder, "pool", lambda self, ids, vectors, pooling: ops.mean(vectors, axis=1))


@fault("labels")
def source_and_target_swapped(monkeypatch):
    """The model reads what it should write."""

    def change(original):
        def translation(*args):
            batch = original(*args)
            return batch | {"source": batch["target"], "target": batch["source"]}

        return translation

    wrap(monkeypatch, examples, "translation", change)


@fault("labels")
def labels_not_shifted(monkeypatch):
    """Each position is to say the token it has just read."""

    def change(original):
        def translation(*args):
            batch = original(*args)
            return batch | {"labels": batch["target"]}

        return translation

    wrap(monkeypatch, examples, "translation", change)


@fault("labels", "fill", many=True)
def nothing_is_masked(monkeypatch):
    """The tokens to be found stand there."""
    monkeypatch.setattr(masking, "MASKED", 0.0)
    monkeypatch.setattr(masking, "REPLACED", 0.0)


@fault("weightless")
def padding_counts_in_the_loss(monkeypatch):
    """The loss is summed over padding too."""
    wrap(
        monkeypatch, loss, "_piece",
        lambda original: lambda features, targets, weights, *rest: original(
            features, targets, ops.ones_like(weights), *rest
        ),
    )  # fmt: skip


def _own_mean(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
    self.loss_mean.add(y_pred[0], y_pred[3])
    return self.micro_batches * y_pred[0] / ops.maximum(y_pred[3], 1.0)


@fault("pieces")
@fault("pieces", accumulate=2)
def mean_of_means(monkeypatch):
    """Each batch is divided by its own tokens, not by those of the update."""
    monkeypatch.setattr(objective.Objective, "compute_loss", _own_mean)


@fault("cached")
@fault("cached", "generate")
def cache_written_one_place_late(monkeypatch):
    """A token's keys and values are stored where the next one's belong."""
    wrap(
        monkeypatch, attention.KeyValues, "write",
        lambda original: lambda self, place, keys, values: original(
            self, (place + 1) % self.keys.shape[-1] if keys.shape[1] == 1 else place, keys, values
        ),
    )  # fmt: skip


@fault("cached")
def positions_stand_still_in_decoding(monkeypatch):
    """Every token that is written takes itself for the first."""
    wrap(
        monkeypatch, transformer.Transformer, "step",
        lambda original: lambda self, *args, positions, **kwargs: original(
            self, *args, positions=ops.zeros_like(positions), **kwargs
        ),
    )  # fmt: skip


@fault("cached", "generate")
def positions_restart_behind_the_prompt(monkeypatch):
    """What is written behind a prompt is numbered from 0 again."""
    wrap(
        monkeypatch, causal_lm.CausalLM, "step",
        lambda original: lambda self, ids, memory, *args, **kwargs: original(
            self, ids, memory._replace(lengths=ops.zeros_like(memory.lengths)), *args, **kwargs
        ),
    )  # fmt: skip


@fault("cached")
def keys_and_values_of_the_memory_swapped(monkeypatch):
    """The memory that is projected once has its keys where its values belong."""

    def project_memory(self, memory):
        keys, values = self._split_pair(self.key_value_projection(memory))
        return attention.KeyValues.of(values, keys)

    monkeypatch.setattr(attention.MultiHeadAttention, "project_memory", project_memory)


@fault("cached")
def second_best_is_taken(monkeypatch):
    """Greedy search takes the second likeliest token."""

    def second(logits):
        top = ops.max(logits, axis=-1, keepdims=True)
        return ops.cast(ops.argmax(ops.where(logits >= top, -1e30, logits), axis=-1), "int32")

    monkeypatch.setattr(strategies, "argmax", second)


@fault("cached")
def a_slot_reads_what_its_predecessor_left(monkeypatch):
    """The whole ring of a cache is visible, whatever stands there."""
    wrap(
        monkeypatch, search, "_visible",
        lambda original: lambda ancestors, in_time: original(ancestors, ops.ones_like(in_time)),
    )  # fmt: skip


@fault("beams")
@fault("beams", "generate")
def a_beam_charges_what_has_ended(monkeypatch):
    """A hypothesis that has ended loses more at every step."""

    def change(original):
        def extend(self, state, logits, step):
            charged = ops.where(state.done_scores > -1e9, state.done_scores - 0.5, state.done_scores)
            return original(self, state._replace(done_scores=charged), logits, step)

        return extend

    wrap(monkeypatch, strategies.BeamSearch, "extend", change)


@fault("beams")
def beams_forget_who_wrote_what(monkeypatch):
    """Each hypothesis reads its own row of the cache, not its ancestors'."""

    def change(original):
        def extend(self, state, logits, step):
            state, done = original(self, state, logits, step)
            rows = ops.arange(self.width, dtype="int32")[None, :, None]
            return state._replace(ancestors=ops.zeros_like(state.ancestors) + rows), done

        return extend

    wrap(monkeypatch, strategies.BeamSearch, "extend", change)


@fault("gradients", frozen=True)
def a_frozen_encoder_that_is_not(monkeypatch):
    """The encoder is to stay as it is, and learns."""
    monkeypatch.setattr(transformer.Transformer, "freeze", lambda self: None)


@fault("gradients", tie="none")
def the_output_projection_does_not_learn(monkeypatch):
    """No gradient reaches the table that scores the vocabulary."""
    wrap(
        monkeypatch, objective, "projected_crossentropy",
        lambda original: lambda features, table, *args, **kwargs: original(
            features, ops.stop_gradient(table), *args, **kwargs
        ),
    )  # fmt: skip


@fault("attention")
def attention_not_scaled(monkeypatch):
    """Scores are not divided by the square root of the head size."""
    wrap(
        monkeypatch, attention.MultiHeadAttention, "_mix",
        lambda original: lambda self, query, *args: original(self, query * self.head_dim**0.5, *args),
    )  # fmt: skip


@fault("attention", positions="rotary", num_heads=4, num_kv_heads=2)
def only_keys_are_turned(monkeypatch):
    """Rotary positions turn the keys, not the queries."""
    wrap(
        monkeypatch, attention, "rotate",
        lambda original: lambda x, positions: x if x.shape[2] > 2 else original(x, positions),
    )  # fmt: skip


@fault("attention", num_heads=4, num_kv_heads=2)
def groups_of_heads_interleaved(monkeypatch):
    """With fewer key heads, each query head reads from another's."""

    def change(original):
        def mix(self, query, keys, values, visible, trace):
            groups = self.num_heads // self.num_kv_heads
            keys, values = (ops.tile(part, (1, 1, groups, 1)) for part in (keys, values))
            return original(self, query, keys, values, visible, trace)

        return mix

    wrap(monkeypatch, attention.MultiHeadAttention, "_mix", change)


@fault("order")
@fault("order", "fill")
def positions_forgotten(monkeypatch):
    """No vector says where its token stands."""
    wrap(
        monkeypatch, inputs.SinusoidalPositions, "call",
        lambda original: lambda self, x, positions=None: x,
    )  # fmt: skip


@fault("alone")
def texts_of_a_batch_mix(monkeypatch):
    """A little of the batch's mean gets into every text."""
    wrap(
        monkeypatch, blocks.Residual, "leave",
        lambda original: lambda self, x, change: original(self, x, change)
        + 0.01 * ops.mean(x, axis=0, keepdims=True),
    )  # fmt: skip


@fault("dropout")
def dropout_is_never_on(monkeypatch):
    """`training` gets lost on its way to the layers."""
    wrap(
        monkeypatch, transformer.Transformer, "features",
        lambda original: lambda self, inputs, training=None, trace=None: original(self, inputs, False, trace),
    )  # fmt: skip


@fault("stored")
def dropout_is_never_off(monkeypatch):
    """Dropout works in translation too."""
    wrap(
        monkeypatch, transformer.Transformer, "features",
        lambda original: lambda self, inputs, training=None, trace=None: original(self, inputs, True, trace),
    )  # fmt: skip


@fault("stored")
def biases_are_not_loaded(monkeypatch):
    """A loaded model has the biases that it was made with."""
    from heedful import run

    wrap(
        monkeypatch, run, "_assign",
        lambda original: lambda own, arrays, origin: original(
            {name: weight for name, weight in own.items() if not name.endswith("bias")}, arrays, origin
        ),
    )  # fmt: skip


@fault("documents", "generate", packed=True)
def documents_of_a_row_see_each_other(monkeypatch):
    """The mask of segments is all True."""
    wrap(monkeypatch, masks, "of_segments", lambda original: lambda *segments: ops.ones_like(original(*segments)))


@fault("pairs", "translate", shared=True)
def targets_see_every_source_of_their_row(monkeypatch):
    """The mask of segments between target and source is all True."""
    wrap(
        monkeypatch, masks, "of_segments",
        lambda original: lambda segments, keys=None: original(segments)
        if keys is None else ops.ones_like(original(segments, keys)),
    )  # fmt: skip


@fault("pairs", "translate", shared=True)
def positions_go_on_through_a_row(monkeypatch):
    """The second sentence of a row begins where the first one ends."""
    wrap(
        monkeypatch, transformer, "_packing",
        lambda original: lambda inputs, side: original(inputs, side)._replace(positions=None),
    )  # fmt: skip


@fault("start")
def embeddings_begin_too_large(monkeypatch):
    """The first weights of the tables are those of a layer that scales nothing."""
    monkeypatch.setattr(keras.initializers, "RandomNormal", lambda stddev: keras.initializers.TruncatedNormal(stddev=5))


@fault("falls")
def the_optimizer_climbs(monkeypatch):
    """Updates go against the gradient's sign."""
    wrap(
        monkeypatch, optimizer.Schedule, "__call__",
        lambda original: lambda self, step: -original(self, step),
    )  # fmt: skip


@fault("falls", "classify")
def the_text_is_lost(monkeypatch):
    """The classifier never gets to see what it classifies."""

    def change(original):
        def features(self, inputs, training=None, trace=None):
            return ops.zeros_like(original(self, inputs, training, trace))

        return features

    wrap(monkeypatch, masked_lm.Classifier, "features", change)
