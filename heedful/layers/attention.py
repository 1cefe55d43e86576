"""Multi-head scaled dot-product attention with an optional key/value cache.

Axes: B batch, T query length, S key length, N query heads, K key heads (K divides N), H head size, D d_model.
"""

from typing import NamedTuple

import keras
from keras import ops

from heedful import backend
from heedful.layers.dropout import Dropout
from heedful.layers.positions import rotate
from heedful.layers.projection import Projection


class KeyValues(NamedTuple):
    """Projected keys (B K, H, S) and values (B K, S, H) that later queries read.

    Each head's lie together, the keys turned: both products of attention then run along rows. On a CPU that takes a
    fifth to two fifths off the attention of a beam; a single query's, little of a step, becomes a quarter slower.
    B and K are one axis, as XLA multiplies them: with two, and a sentence alone, it would update one cache for the
    product and another for the loop, and copy both.
    """

    keys: object
    values: object

    @classmethod
    def of(cls, keys, values):
        """Make a cache of keys and values (B, S, K, H)."""
        length, size = keys.shape[1], keys.shape[3]
        return cls(
            ops.reshape(ops.transpose(keys, (0, 2, 3, 1)), (-1, size, length)),
            ops.reshape(ops.swapaxes(values, 1, 2), (-1, length, size)),
        )

    def write(self, place, keys, values):
        """Return the cache with keys and values (B, T, K, H) stored from `place` on."""
        new = KeyValues.of(keys, values)
        return KeyValues(
            ops.slice_update(self.keys, (0, 0, place), new.keys),
            ops.slice_update(self.values, (0, place, 0), new.values),
        )

    def attend(self, query, key_heads, visible=None):
        """Let `query` (B, T, N, H) read from K key heads; return what it gets, alike, and the weights (B, N, T, S)."""
        weights = softmax(self.scores(query, key_heads), visible)
        return self.mix(weights, key_heads), weights

    def scores(self, query, key_heads):
        """Return the float32 scores (B, N, T, S) of the keys for `query` (B, T, N, H).

        The N / K queries that share a key head are rows of one matrix product; keys are never repeated.
        """
        length, heads, size = query.shape[1:]
        query = ops.reshape(ops.swapaxes(query, 1, 2), (-1, heads // key_heads * length, size))
        scores = ops.matmul(query * size**-0.5, self.keys)  # (B K, N / K x T, S)
        return ops.cast(ops.reshape(scores, (-1, heads, length, self.keys.shape[-1])), "float32")

    def mix(self, weights, key_heads):
        """Return the values mixed by `weights` (B, N, T, S): (B, T, N, H)."""
        heads, length, source_length = weights.shape[1:]
        read = ops.cast(weights, self.values.dtype)
        read = ops.reshape(read, (-1, heads // key_heads * length, source_length))
        mixed = ops.reshape(ops.matmul(read, self.values), (-1, heads, length, self.values.shape[-1]))
        return ops.swapaxes(mixed, 1, 2)


class Prompted(NamedTuple):
    """A cache in two parts: what all hypotheses of a text begin with, read once, and what each has written since.

    To attention it is one cache, the prompt's S positions before the others; `visible` is over both.
    """

    prompt: KeyValues
    past: KeyValues

    def write(self, place, keys, values):
        """Return the cache with keys and values (B, T, K, H) stored from `place` of the past on."""
        return self._replace(past=self.past.write(place, keys, values))

    def attend(self, query, key_heads, visible=None):
        """As `KeyValues.attend`, over both parts."""
        weights = softmax(ops.concatenate([part.scores(query, key_heads) for part in self], axis=-1), visible)
        length = self.prompt.values.shape[1]
        mixed = self.prompt.mix(weights[..., :length], key_heads)
        return mixed + self.past.mix(weights[..., length:], key_heads), weights


class Trace:
    """The attention weights of a forward pass, by the path of their layer.

    Hand one to a model's call and read it afterwards: `trace["decoder/block_3/cross_attention"]` is (B, N, T, S).
    It is an object and not a dict because Keras copies the dicts that pass through a layer.
    """

    def __init__(self):
        self.weights = {}

    def record(self, layer, weights):
        """Keep `weights` under the layer's path inside its model."""
        self.weights[layer.path.split("/", 1)[-1]] = weights

    def to_source(self):
        """Return what the last cross-attention reads of the source, the mean of its heads: (B, T, S)."""
        path = [path for path in self.weights if path.endswith("cross_attention")][-1]
        return ops.mean(self.weights[path], axis=1)

    def __getitem__(self, path):
        return self.weights[path]

    def __iter__(self):
        return iter(self.weights)


def attention_weights(query, keys, visible=None):
    """Say how much each query reads from each key: softmax(q k / sqrt(H)) (Vaswani et al. 2017, section 3.2.1).

    Args:
        query: (B, T, N, H).
        keys: (B, S, K, H); each key head serves N / K query heads.
        visible: boolean, broadcastable to (B, N, T, S), or None.

    Returns:
        Weights (B, N, T, S) in float32; each row sums to 1.
    """
    groups = query.shape[2] // keys.shape[2]
    keys = ops.repeat(keys, groups, axis=2) if groups > 1 else keys
    scores = ops.einsum("btnh,bsnh->bnts", query, keys)
    return softmax(ops.cast(scores, "float32") * query.shape[-1] ** -0.5, visible)


def softmax(scores, visible=None):
    """Turn float32 scores (..., S) into weights that sum to 1; what is not `visible` gets exactly 0."""
    if visible is not None:
        scores = ops.where(visible, scores, -1e30)
    exponentials = ops.exp(scores - ops.max(scores, axis=-1, keepdims=True))
    return exponentials / ops.sum(exponentials, axis=-1, keepdims=True)


@keras.saving.register_keras_serializable("heedful")
class MultiHeadAttention(keras.layers.Layer):
    """Let each query position read from the key positions visible to it (Vaswani et al. 2017, section 3.2).

    Projections that read the same input are one matrix product: query, key and value in self-attention, key and value
    in cross-attention.

    Args:
        d_model: width D of the inputs and of the output.
        num_heads: query heads N; must divide `d_model`.
        num_kv_heads: key and value heads K; must divide `num_heads`. Fewer heads make the cache smaller
            (Ainslie et al. 2023).
        cross: attend to a memory instead of to the queries themselves.
        rotary: turn queries and keys by their positions (self-attention only).
        dropout: share of attention weights dropped in training.
        bias: whether the projections have one.
    """

    def __init__(
        self, d_model, num_heads, num_kv_heads=None, cross=False, rotary=False, dropout=0.0, bias=True, **kwargs
    ):
        super().__init__(**kwargs)
        num_kv_heads = num_kv_heads or num_heads
        if d_model % num_heads or num_heads % num_kv_heads:
            raise ValueError(
                f"d_model ({d_model}) must be a multiple of num_heads ({num_heads}), "
                f"and num_heads a multiple of num_kv_heads ({num_kv_heads})."
            )
        if rotary and (cross or (d_model // num_heads) % 2):
            raise ValueError(f"Rotary positions need self-attention and an even head size ({d_model // num_heads}).")
        self.d_model, self.num_heads, self.num_kv_heads = d_model, num_heads, num_kv_heads
        self.cross, self.rotary, self.bias = cross, rotary, bias
        self.head_dim = d_model // num_heads
        self.query_width, self.kv_width = num_heads * self.head_dim, num_kv_heads * self.head_dim
        if cross:
            self.query_projection = self._dense(self.query_width, "query")
            self.key_value_projection = self._dense(2 * self.kv_width, "key_value", like=self.kv_width)
        else:
            joint_width = self.query_width + 2 * self.kv_width
            self.joint_projection = self._dense(joint_width, "query_key_value", like=self.query_width)
        self.output_projection = self._dense(d_model, "output")
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)

    def build(self, queries_shape=None, memory_shape=None):
        inputs = [self.query_projection, self.key_value_projection] if self.cross else [self.joint_projection]
        for projection in (*inputs, self.output_projection):
            projection.build((None, None, self.d_model))

    def call(self, queries, memory=None, visible=None, cache=None, place=0, positions=None, trace=None):
        """Attend from `queries` to themselves, or to `memory` in cross-attention.

        Args:
            queries: (B, T, D).
            memory: for cross-attention: (B, S, D), or its `KeyValues` from `project_memory`.
            visible: boolean, broadcastable to (B, N, T, S); True where a query may look. None means everywhere.
            cache: for self-attention: `KeyValues` or `Prompted` with room for all positions, or None when training.
            place: where in the cache the keys and values of the queries are stored.
            positions: of the queries, (T,) or (B, T), for rotary positions; 0 to T - 1 if none are given.
            trace: a `Trace` that keeps the attention weights, or None.

        Returns:
            The attended vectors (B, T, D); with a cache (vectors, the cache with the new positions added).
        """
        query, new = self._project(queries, memory, positions)
        stored = memory if isinstance(memory, KeyValues) else None
        if cache is not None:
            stored = cache = cache.write(place, *new)
        if stored is not None:
            mixed, weights = stored.attend(query, self.num_kv_heads, visible)  # (B, T, N, H)
            if trace is not None:
                trace.record(self, weights)
        else:
            mixed = self._mix(query, *new, visible, trace)
        attended = self.output_projection(ops.reshape(mixed, (-1, ops.shape(mixed)[1], self.d_model)))
        return attended if cache is None else (attended, cache)

    def project_memory(self, memory):
        """Project `memory` (B, S, D) once, for every later query."""
        return KeyValues.of(*self._split_pair(self.key_value_projection(memory)))

    def empty_cache(self, batch_size, length):
        """Return room for the keys and values of `length` positions."""
        keys, values = (self.head_dim, length), (length, self.head_dim)
        return KeyValues(
            *(ops.zeros((batch_size * self.num_kv_heads, *shape), self.compute_dtype) for shape in (keys, values))
        )

    def _project(self, queries, memory, positions):
        """Return the query (B, T, N, H), and the keys and values, each (B, S, K, H): None where `memory` holds them."""
        if self.cross:
            query = self._split(self.query_projection(queries), self.num_heads)
            if isinstance(memory, KeyValues):
                return query, None
            return query, self._split_pair(self.key_value_projection(memory))
        joint = self.joint_projection(queries)  # (B, T, (N + 2K) H)
        if self.kv_width == self.query_width:  # cut at once: put together again, gradients need no sums
            query, keys, values = (self._split(part, self.num_heads) for part in ops.split(joint, 3, axis=-1))
        else:
            query = self._split(joint[..., : self.query_width], self.num_heads)
            keys, values = self._split_pair(joint[..., self.query_width :])
        if self.rotary:
            positions = ops.arange(ops.shape(queries)[1]) if positions is None else positions
            query, keys = rotate(query, positions), rotate(keys, positions)
        return query, (keys, values)

    def _mix(self, query, keys, values, visible, trace):
        if trace is None and self.dropout.rate == 0:
            return backend.attend(query, keys, values, visible)
        weights = attention_weights(query, keys, visible)
        if trace is not None:
            trace.record(self, weights)
        groups = self.num_heads // self.num_kv_heads
        values = ops.repeat(values, groups, axis=2) if groups > 1 else values
        weights = self.dropout(ops.cast(weights, values.dtype))
        return ops.einsum("bnts,bsnh->btnh", weights, values)

    def _dense(self, units, name, like=None):
        # Glorot's bound as if each of the fused projections stood alone with `like` outputs.
        scale = (self.d_model + units) / (self.d_model + (like or units))
        initializer = keras.initializers.VarianceScaling(scale, mode="fan_avg", distribution="uniform")
        options = {"use_bias": self.bias, "kernel_initializer": initializer, "dtype": self.dtype_policy}
        return Projection(units, name=name, **options)

    def _split(self, x, heads):
        return ops.reshape(x, (-1, ops.shape(x)[1], heads, self.head_dim))

    def _split_pair(self, pair):
        return tuple(self._split(half, self.num_kv_heads) for half in ops.split(pair, 2, axis=-1))  # each (B, S, K, H)

    def get_config(self):
        sizes = {"d_model": self.d_model, "num_heads": self.num_heads, "num_kv_heads": self.num_kv_heads}
        options = {"cross": self.cross, "rotary": self.rotary, "dropout": self.dropout.rate, "bias": self.bias}
        return super().get_config() | sizes | options
