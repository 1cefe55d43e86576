"""Typical bugs in Transformers, each a patch of our own code, with the check that must find it.

A fault is a function that takes pytest's `monkeypatch`; its docstring describes the bug.
"""

import keras
from keras import ops

from heedful.data import examples, masking
from heedful.decoding import beam_search, search, strategies
from heedful.layers import attention, blocks, cache, input_embedding, masks
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
    wrap(monkeypatch, masks, "causal", lambda original: lambda *args: ops.ones_like(original(*args)))


@fault("future")
@fault("future", "generate", positions="rotary")
def causal_mask_one_too_far(monkeypatch):
    """Each position also sees the next one, whose token it must predict."""
    wrap(monkeypatch, masks, "causal", lambda original: lambda query, keys: original(query + 1, keys))


@fault("padding")
@fault("padding", "fill")
@fault("padding", "classify")
def padding_mask_ignored(monkeypatch):
    """Padding is read like text."""
    wrap(monkeypatch, masks, "padding", lambda original: lambda valid: ops.ones_like(original(valid)))


@fault("padding")
def source_padding_visible_to_cross_attention(monkeypatch):
    """The encoder masks padding, but cross-attention does not."""

    def change(original):
        def encode(self, *args):
            memory, visible = original(self, *args)
            return memory, ops.ones_like(visible)

        return encode

    wrap(monkeypatch, transformer.Transformer, "encode", change)


@fault("padding", "classify")
def mean_pooling_includes_padding(monkeypatch):
    """The vector of a text is the mean over its tokens and its padding."""
    monkeypatch.setattr(masked_lm.TextEncoder, "pool", lambda self, ids, vectors, pooling: ops.mean(vectors, axis=1))


@fault("labels")
def source_and_target_swapped(monkeypatch):
    """The model reads what it should write."""

    def change(original):
        def teacher_forcing_batch(*args):
            batch = original(*args)
            return batch | {"source": batch["target"], "target": batch["source"]}

        return teacher_forcing_batch

    wrap(monkeypatch, examples, "teacher_forcing_batch", change)


@fault("labels")
def labels_not_shifted(monkeypatch):
    """Each position must predict the token that it has just read."""

    def change(original):
        def teacher_forcing_batch(*args):
            batch = original(*args)
            return batch | {"labels": batch["target"]}

        return teacher_forcing_batch

    wrap(monkeypatch, examples, "teacher_forcing_batch", change)


@fault("labels", "fill", many=True)
def nothing_is_masked(monkeypatch):
    """The tokens to predict stay visible in the input."""
    monkeypatch.setattr(masking, "MASKED", 0.0)
    monkeypatch.setattr(masking, "REPLACED", 0.0)


@fault("weightless")
def padding_counts_in_the_loss(monkeypatch):
    """The loss is summed over padding too."""
    wrap(
        monkeypatch, loss, "_chunk",
        lambda original: lambda features, targets, weights, *rest: original(
            features, targets, ops.ones_like(weights), *rest
        ),
    )  # fmt: skip


def _own_mean(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
    self.loss_mean.add(y_pred[0], y_pred[3])
    return self.micro_batches * y_pred[0] / ops.maximum(y_pred[3], 1.0)


@fault("accumulation")
@fault("accumulation", accumulate_batches=2)
def mean_of_means(monkeypatch):
    """The loss of each batch is divided by its own token count, not by that of the update."""
    monkeypatch.setattr(objective.Objective, "compute_loss", _own_mean)


@fault("cached")
@fault("cached", "generate")
def cache_written_one_place_late(monkeypatch):
    """A token's keys and values are stored where the next one's belong."""
    wrap(
        monkeypatch, cache.KeyValueCache, "write",
        lambda original: lambda self, place, keys, values: original(
            self, (place + 1) % self.keys.shape[-1] if keys.shape[1] == 1 else place, keys, values
        ),
    )  # fmt: skip


@fault("cached")
def every_decode_step_has_position_0(monkeypatch):
    """Every generated token gets position 0."""
    wrap(
        monkeypatch, transformer.Transformer, "decode_step",
        lambda original: lambda self, *args, positions, **kwargs: original(
            self, *args, positions=ops.zeros_like(positions), **kwargs
        ),
    )  # fmt: skip


@fault("cached", "generate")
def positions_restart_after_the_prompt(monkeypatch):
    """The positions of generated tokens start at 0 again after a prompt."""
    wrap(
        monkeypatch, causal_lm.CausalLM, "decode_step",
        lambda original: lambda self, ids, memory, *args, **kwargs: original(
            self, ids, memory._replace(lengths=ops.zeros_like(memory.lengths)), *args, **kwargs
        ),
    )  # fmt: skip


@fault("cached")
def cross_attention_keys_and_values_swapped(monkeypatch):
    """The cached keys and values of the encoder's output are exchanged."""

    def project_memory(self, memory):
        keys, values = self._split_pair(self.key_value_projection(memory))
        return cache.KeyValueCache.of(values, keys)

    monkeypatch.setattr(attention.MultiHeadAttention, "project_memory", project_memory)


@fault("cached")
def greedy_search_takes_the_second_best_token(monkeypatch):
    """Greedy search takes the second most probable token."""

    def second(logits):
        top = ops.max(logits, axis=-1, keepdims=True)
        return ops.cast(ops.argmax(ops.where(logits >= top, -1e30, logits), axis=-1), "int32")

    monkeypatch.setattr(strategies, "argmax", second)


@fault("cached")
def stale_cache_entries_visible(monkeypatch):
    """The whole ring buffer of the cache is visible, including stale entries."""
    wrap(
        monkeypatch, search, "_visible",
        lambda original: lambda ancestors, in_time: original(ancestors, ops.ones_like(in_time)),
    )  # fmt: skip


@fault("beams")
@fault("beams", "generate")
def finished_hypotheses_keep_losing_score(monkeypatch):
    """A finished hypothesis loses score at every further step."""

    def change(original):
        def extend(self, state, logits, step):
            charged = ops.where(state.done_scores > -1e9, state.done_scores - 0.5, state.done_scores)
            return original(self, state._replace(done_scores=charged), logits, step)

        return extend

    wrap(monkeypatch, beam_search.BeamSearch, "extend", change)


@fault("beams")
def beams_ignore_their_ancestors(monkeypatch):
    """Each hypothesis reads its own row of the cache, not its ancestors'."""

    def change(original):
        def extend(self, state, logits, step):
            state, done = original(self, state, logits, step)
            rows = ops.arange(self.width, dtype="int32")[None, :, None]
            return state._replace(ancestors=ops.zeros_like(state.ancestors) + rows), done

        return extend

    wrap(monkeypatch, beam_search.BeamSearch, "extend", change)


@fault("gradients", frozen=True)
def frozen_encoder_is_trained(monkeypatch):
    """The encoder should stay frozen, but learns."""
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
        monkeypatch, attention.MultiHeadAttention, "_attend",
        lambda original: lambda self, query, *args: original(self, query * self.head_dim**0.5, *args),
    )  # fmt: skip


@fault("attention", positions="rotary", num_heads=4, num_kv_heads=2)
def rotary_rotates_keys_only(monkeypatch):
    """Rotary positions rotate the keys, but not the queries."""
    wrap(
        monkeypatch, attention, "rotate",
        lambda original: lambda x, *rest: x if x.shape[2] > 2 else original(x, *rest),
    )  # fmt: skip


@fault("attention", num_heads=4, qk_norm=True)
def only_queries_are_normalised(monkeypatch):
    """Keys keep their lengths, although the model has norms of queries and keys."""
    wrap(
        monkeypatch, attention.MultiHeadAttention, "_normalised",
        lambda original: lambda self, norm, heads: heads if norm is self.key_norm else original(self, norm, heads),
    )  # fmt: skip


@fault("attention", num_heads=4, num_kv_heads=2)
def groups_of_heads_interleaved(monkeypatch):
    """With fewer key/value heads, query heads read those of other groups."""

    def change(original):
        def mix(self, query, keys, values, visible, trace):
            groups = self.num_heads // self.num_kv_heads
            keys, values = (ops.tile(part, (1, 1, groups, 1)) for part in (keys, values))
            return original(self, query, keys, values, visible, trace)

        return mix

    wrap(monkeypatch, attention.MultiHeadAttention, "_attend", change)


@fault("order")
@fault("order", "fill")
def positions_not_added(monkeypatch):
    """No position encoding is added to the embeddings."""
    wrap(
        monkeypatch, input_embedding.SinusoidalPositions, "call",
        lambda original: lambda self, x, positions=None: x,
    )  # fmt: skip


@fault("alone")
def texts_of_a_batch_mix(monkeypatch):
    """A small share of the batch's mean leaks into every text."""
    wrap(
        monkeypatch, blocks.Residual, "after",
        lambda original: lambda self, x, change: original(self, x, change)
        + 0.01 * ops.mean(x, axis=0, keepdims=True),
    )  # fmt: skip


@fault("dropout")
def dropout_is_never_on(monkeypatch):
    """`training` is not passed on to the layers."""
    wrap(
        monkeypatch, transformer.Transformer, "features",
        lambda original: lambda self, inputs, training=None, trace=None: original(self, inputs, False, trace),
    )  # fmt: skip


@fault("saving")
def dropout_is_never_off(monkeypatch):
    """Dropout stays active in inference."""
    wrap(
        monkeypatch, transformer.Transformer, "features",
        lambda original: lambda self, inputs, training=None, trace=None: original(self, inputs, True, trace),
    )  # fmt: skip


@fault("saving")
def biases_are_not_loaded(monkeypatch):
    """A loaded model keeps the biases of its initialization."""
    from heedful.runs import weights

    wrap(
        monkeypatch, weights, "_assign",
        lambda original: lambda own, arrays, origin: original(
            {name: weight for name, weight in own.items() if not name.endswith("bias")}, arrays, origin
        ),
    )  # fmt: skip


@fault("documents", "generate", packed=True)
def documents_of_a_row_see_each_other(monkeypatch):
    """The segment mask is all True."""
    wrap(monkeypatch, masks, "same_segment", lambda original: lambda *segments: ops.ones_like(original(*segments)))


@fault("pairs", "translate", shared=True)
def targets_see_every_source_of_their_row(monkeypatch):
    """The segment mask between target and source is all True."""
    wrap(
        monkeypatch, masks, "same_segment",
        lambda original: lambda segments, keys=None: original(segments)
        if keys is None else ops.ones_like(original(segments, keys)),
    )  # fmt: skip


@fault("pairs", "translate", shared=True)
def positions_continue_across_sentences_of_a_row(monkeypatch):
    """The positions of a row's second sentence continue those of the first."""
    wrap(
        monkeypatch, transformer, "_packing",
        lambda original: lambda inputs, side: original(inputs, side)._replace(positions=None),
    )  # fmt: skip


@fault("start")
def embeddings_initialized_too_large(monkeypatch):
    """The embedding tables are initialized with far too large values."""
    monkeypatch.setattr(keras.initializers, "RandomNormal", lambda stddev: keras.initializers.TruncatedNormal(stddev=5))


@fault("loss_falls")
def the_learning_rate_is_negative(monkeypatch):
    """Updates follow the gradient uphill."""
    wrap(
        monkeypatch, optimizer.Schedule, "__call__",
        lambda original: lambda self, step: -original(self, step),
    )  # fmt: skip


@fault("loss_falls", "classify")
def classifier_features_are_zero(monkeypatch):
    """The classifier does not see the text."""

    def change(original):
        def features(self, inputs, training=None, trace=None):
            return ops.zeros_like(original(self, inputs, training, trace))

        return features

    wrap(monkeypatch, masked_lm.Classifier, "features", change)
