"""Checks of what a model reads: each returns the measured value and the largest allowed one.

Axes: B examples, T text length, S source length, N heads, K key heads, H head size, D d_model, V vocabulary.
"""

import tempfile
from typing import Any

import numpy as np

from heedful import backend
from heedful.layers.attention import MultiHeadAttention
from heedful.runs.run import Run
from heedful.workflows.selfcheck.subject import Subject


def future(subject: Subject) -> tuple[Any, ...]:
    """Replace the tokens from the middle on; no earlier logit may change."""
    text, before = subject.text, subject.logits()
    ids = subject.batch[text]
    middle = max(1, int((ids != 0).sum(axis=1).max()) // 2)
    changed = np.concatenate([ids[:, :middle], subject.other_tokens(ids[:, middle:])], axis=1)
    after = subject.logits(**{text: changed})
    if (changed != ids).any() and np.array_equal(before[:, middle:], after[:, middle:]):
        return float("inf"), 0.0  # nothing is read at all
    return _largest(before[:, :middle] - after[:, :middle]), subject.rounding(before)


def padding(subject: Subject) -> tuple[Any, ...]:
    """Replace the padding embeddings by noise; no logit of a real token may change, except that for padding."""
    before = subject.logits()
    model = subject.model
    tables = subject.task.embeddings(model)
    noise = np.random.default_rng(2)
    kept = {}
    for table in {id(table): table for table in tables}.values():
        values = kept[table] = backend.to_numpy(table.embeddings)
        values = np.array(values)
        values[0] = noise.normal(size=values.shape[1], scale=2.0)
        table.embeddings.assign(values)
    try:
        after = subject.logits()
    finally:
        for table, values in kept.items():
            table.embeddings.assign(values)
    difference = after - before
    if difference.ndim == 3:
        difference = difference[subject.real][:, 1:]
    return _largest(difference), subject.rounding(before)


def weightless(subject: Subject) -> tuple[Any, ...]:
    """Set the weights of the first text to 0 and change all labels without weight; the loss may not change."""
    weights, labels = subject.batch["weights"].copy(), subject.batch["labels"]
    weights[0] = 0
    choices = 2 if subject.run.config.data.several_labels else subject.model.output_projection.embeddings.shape[0]
    before = subject.sums(weights=weights)
    after = subject.sums(weights=weights, labels=np.where(weights == 0, (labels + 1) % choices, labels))
    return _largest(before - after), 1e-3 * max(1.0, abs(float(before[0])))


def alone(subject: Subject) -> tuple[Any, ...]:
    """Compare a text by itself, without padding, with the same text in a batch; the logits may not differ."""
    together = subject.logits()[0]
    single = {name: array[:1] for name, array in subject.inputs.items()}
    for name in ("source", "target", "ids"):
        if name in single:
            length = int((single[name] != 0).sum())
            single[name] = single[name][:, :length]
    if "ids" in single:  # cuts segments and positions to the same length
        single = {name: array[:, : single["ids"].shape[1]] for name, array in single.items()}
    by_itself = subject.logits_of(single)[0]
    if by_itself.ndim == 2:
        together = together[: len(by_itself)]
    return _largest(together - by_itself), subject.rounding(together)


def documents(subject: Subject) -> tuple[Any, ...]:
    """Split each row into two documents and replace the first; no logit of the second may change."""
    ids = subject.batch["ids"]
    middle = ids.shape[1] // 2
    places = np.arange(ids.shape[1])
    segments = np.broadcast_to(1 + (places >= middle), ids.shape).astype(subject.batch["segments"].dtype)
    positions = np.broadcast_to(np.where(places < middle, places, places - middle), ids.shape)
    rows = {"segments": segments, "positions": positions.astype(subject.batch["positions"].dtype)}
    before = subject.logits(**rows)
    changed = np.concatenate([subject.other_tokens(ids[:, :middle]), ids[:, middle:]], axis=1)
    after = subject.logits(ids=changed, **rows)
    return _largest((after - before)[:, middle:]), subject.rounding(before)


def pairs(subject: Subject) -> tuple[Any, ...]:
    """Put each pair into a row with another one; its logits must equal those in a row of its own."""
    apart, together = subject.logits(), {}
    for side in ("source", "target"):
        ids = subject.batch[side]
        number = np.repeat([1, 2], ids.shape[1]).astype(np.int32)
        together[side] = np.concatenate([np.roll(ids, 1, axis=0), ids], axis=1)
        together[f"{side}_segments"] = np.where(together[side] != 0, number, 0)
        positions = np.tile(np.arange(ids.shape[1], dtype=np.int32), 2)
        together[f"{side}_positions"] = np.broadcast_to(positions, together[side].shape)
    second = subject.logits_of(together)[:, apart.shape[1] :]
    return _largest((second - apart)[subject.real]), subject.rounding(apart)


def order(subject: Subject) -> tuple[Any, ...]:
    """Swap two tokens; return 1 if this affects no other token of any text, else 0."""
    before = subject.logits()
    name = subject.task.read_side
    ids = subject.batch[name]
    if ids.shape[1] < 3:
        return 0.0, 0.0  # no other token
    after = subject.logits(**{name: np.concatenate([ids[:, [1, 0]], ids[:, 2:]], axis=1)})
    change = np.abs(after - before)
    if name == "ids" and change.ndim == 3:
        change = np.where(subject.real[..., None], change, 0)[:, 2:]
    distinct = (ids[:, 0] != ids[:, 1]) & (ids[:, 2] != 0)
    if "segments" in subject.batch:
        distinct &= subject.batch["segments"][:, 0] == subject.batch["segments"][:, 2]
    unmoved = change.reshape(len(ids), -1).max(axis=-1, initial=0) < 0.05 * subject.rounding(before)
    return float(distinct.any() and unmoved[distinct].all()), 0.0


def attention(subject: Subject) -> tuple[Any, ...]:
    """Compare the first self-attention with softmax(q k / sqrt(H)) v, computed in NumPy from its weights."""
    stack = subject.model.encoder if hasattr(subject.model, "encoder") else subject.model.decoder
    layer = stack.blocks[0].attention
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2, 5, layer.d_model)).astype(np.float32)
    visible = np.tril(np.ones((5, 5), bool))
    compute = backend.compiled(lambda x, visible: layer(x, visible=visible), layer, brief=True)
    computed = np.asarray(backend.to_numpy(compute(x, visible[None, None])), np.float32)
    wanted = _attend(layer, x, visible)
    return _largest(computed - wanted), subject.rounding(wanted)


def _attend(layer: MultiHeadAttention, x, visible):
    heads, key_heads, size = layer.num_heads, layer.num_kv_heads, layer.head_dim
    query = keys = values = x.astype(np.float64)
    if layer.joint_projection is not None:
        joint = _dense(layer.joint_projection, query)
        query, keys, values = np.split(joint, [heads * size, (heads + key_heads) * size], axis=-1)
    query, keys, values = (part.reshape(*x.shape[:2], -1, size) for part in (query, keys, values))
    if layer.qk_norm:
        query, keys = _normalised(layer.query_norm, query), _normalised(layer.key_norm, keys)
    if layer.rotary:
        query, keys = (_turned(part, layer.rotary_base) for part in (query, keys))
    keys, values = (np.repeat(part, heads // key_heads, axis=2) for part in (keys, values))
    scores = np.einsum("btnh,bsnh->bnts", query, keys) / np.sqrt(size)
    weights = np.exp(np.where(visible, scores, -np.inf))
    weights /= weights.sum(axis=-1, keepdims=True)
    mixed = np.einsum("bnts,bsnh->btnh", weights, values).reshape(*x.shape[:2], heads * size)
    return mixed if layer.output_projection is None else _dense(layer.output_projection, mixed)


def _dense(layer, x):
    x = x @ backend.to_numpy(layer.kernel).astype(np.float64)
    return x + backend.to_numpy(layer.bias) if layer.use_bias else x


def _normalised(norm, x):
    root = np.sqrt((x**2).mean(axis=-1, keepdims=True) + norm.epsilon)
    return x / root * backend.to_numpy(norm.scale).astype(np.float64)


def _turned(x, base):
    half = x.shape[-1] // 2
    angles = np.arange(x.shape[1])[:, None] * base ** (-np.arange(half) / half)
    cosine, sine = np.cos(angles)[:, None], np.sin(angles)[:, None]
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)


def saving(subject: Subject) -> tuple[Any, ...]:
    """Save a model, build it again and load its weights; the logits may not change."""
    before = subject.logits()
    with tempfile.TemporaryDirectory() as folder:
        copy = Run(folder, subject.run.config, subject.run.source_tokenizer, subject.run.target_tokenizer)
        copy.save_model(subject.model)
        loaded = copy.load_model()
    forward = backend.compiled(lambda inputs: loaded(inputs), loaded, brief=True)
    after = np.asarray(backend.to_numpy(forward(subject.inputs)), np.float32)
    return _largest(before - after), 0.01 * subject.rounding(before)


def _largest(difference):
    return float(np.abs(difference).max()) if difference.size else 0.0
