"""Multi-head scaled dot-product attention with an optional key/value cache.

Axes: B batch, T query length, S key length, N query heads, K key heads (K divides N), H head size, D d_model.
"""

from typing import Any

import keras
from keras import ops

from heedful import backend
from heedful.backend import Shape, Tensor
from heedful.config.architecture import choices
from heedful.layers import masks
from heedful.layers.cache import KeyValueCache, PrefixedCache
from heedful.layers.dropout import Dropout
from heedful.layers.norms import EPSILON, RMSNorm
from heedful.layers.positions import rotate
from heedful.layers.projection import Projection
from heedful.layers.same_shape import SameShape
from heedful.layers.softmax import softmax
from heedful.layers.trace import Trace

PROJECTIONS = choices("attention_projections")


def attention_weights(query: Tensor, keys: Tensor, visible: Tensor | None = None) -> Tensor:
    """Return the attention weights softmax(q k / sqrt(H)) of queries over keys (Vaswani et al. 2017, section 3.2.1).

    Args:
        query: (B, T, N, H).
        keys: (B, S, K, H); each key head serves N / K query heads.
        visible: boolean, broadcastable to (B, N, T, S), or (B, T, S); True where a query may attend. None: everywhere.

    Returns:
        Weights (B, N, T, S) in float32; each row sums to 1.

    Raises:
        ValueError: `visible` is not boolean, or its shape does not fit.
    """
    if visible is not None:
        visible = masks.checked(visible, (query.shape[0], query.shape[2], query.shape[1], keys.shape[1]))
    groups = query.shape[2] // keys.shape[2]
    keys = ops.repeat(keys, groups, axis=2) if groups > 1 else keys
    scores = ops.einsum("btnh,bsnh->bnts", query, keys)
    return softmax(ops.cast(scores, "float32") * query.shape[-1] ** -0.5, visible)


@keras.saving.register_keras_serializable("heedful")
class MultiHeadAttention(SameShape):
    """Multi-head attention: each query attends to the keys that are visible to it (Vaswani et al. 2017, section 3.2).

    Projections of the same input are fused into one matrix product: query, key and value in self-attention, key and
    value in cross-attention.

    In a Keras model that propagates masks, padding is hidden without `visible`: the mask of the queries (of the memory
    in cross-attention) is read, (B, S) with True at real tokens or (B, T, S) with True where a query may attend. The
    output has the mask of the queries.

    Args:
        d_model: width D of the inputs and of the output.
        num_heads: query heads N; must divide `d_model` unless `head_dim` is given.
        num_kv_heads: key and value heads K; must divide `num_heads`. Fewer heads need a smaller cache (Ainslie et al.
            2023). None: as many as `num_heads`.
        head_dim: head size H; None: `d_model / num_heads`.
        cross: attend to a memory instead of the queries (cross-attention).
        causal: hide the keys that come after a query (self-attention only).
        rotary: rotate queries and keys by their positions, see `rotate` (self-attention only).
        rotary_base: base of the wavelengths of rotary positions.
        dropout: fraction of attention weights dropped in training.
        bias: whether the projections have a bias.
        qk_norm: whether each head of queries and keys is normalised, with a learned scale (H,), before it is rotated.
        norm_epsilon: epsilon of these norms.
        residual_init: factor of the initial weights of the output projection.
        projections: `all`; `input`, without the output projection; `output`, without those of query, key and value; or
            `none`. Without one of them `num_heads * head_dim` must be `d_model`.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        *,
        head_dim: int | None = None,
        cross: bool = False,
        causal: bool = False,
        rotary: bool = False,
        rotary_base: float = 10000.0,
        dropout: float = 0.0,
        bias: bool = True,
        qk_norm: bool = False,
        norm_epsilon: float = EPSILON,
        residual_init: float = 1.0,
        projections: str = "all",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.d_model, self.num_heads = d_model, num_heads
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if min(d_model, num_heads, self.num_kv_heads, head_dim or 1) < 1:
            raise ValueError(
                f"d_model ({d_model}), num_heads ({num_heads}) and num_kv_heads ({num_kv_heads}) must be positive."
            )
        self.cross, self.causal, self.rotary, self.bias, self.projections = cross, causal, rotary, bias, projections
        self.head_dim, self.rotary_base = head_dim or d_model // num_heads, rotary_base
        self.qk_norm, self.norm_epsilon, self.residual_init = qk_norm, norm_epsilon, residual_init
        self.query_width, self.kv_width = num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        self._check(head_dim)
        self.supports_masking = True
        self.query_projection = self.key_value_projection = self.joint_projection = self.output_projection = None
        if projections in ("all", "input"):
            if cross:
                self.query_projection = self._dense(self.query_width, "query")
                self.key_value_projection = self._dense(2 * self.kv_width, "key_value", like=self.kv_width)
            else:
                joint_width = self.query_width + 2 * self.kv_width
                self.joint_projection = self._dense(joint_width, "query_key_value", like=self.query_width)
        if projections in ("all", "output"):
            self.output_projection = self._dense(d_model, "output", factor=residual_init)
        self.query_norm = self.key_norm = None
        if qk_norm:
            self.query_norm, self.key_norm = (
                RMSNorm(epsilon=norm_epsilon, name=f"{part}_norm", dtype=self.dtype_policy) for part in ("query", "key")
            )
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)

    def _check(self, head_dim: int | None) -> None:
        """Raise `ValueError` if the arguments contradict each other."""
        if self.projections not in PROJECTIONS:
            raise ValueError(f"Unknown projections {self.projections!r}: choose one of {', '.join(PROJECTIONS)}.")
        if (self.d_model % self.num_heads and not head_dim) or self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"d_model ({self.d_model}) must be a multiple of num_heads ({self.num_heads}), "
                f"and num_heads a multiple of num_kv_heads ({self.num_kv_heads})."
            )
        if self.rotary and (self.cross or self.head_dim % 2):
            raise ValueError(f"Rotary positions need self-attention and an even head size ({self.head_dim}).")
        if self.cross and self.causal:
            raise ValueError("Cross-attention cannot be causal: queries and memory have positions of their own.")
        if self.projections != "all" and self.query_width != self.d_model:
            raise ValueError(
                f"Without all projections, num_heads * head_dim ({self.query_width}) must be d_model ({self.d_model})."
            )
        if self.projections in ("output", "none") and self.num_kv_heads != self.num_heads:
            raise ValueError("Fewer key/value heads than query heads need projections of keys and values.")

    def build(self, queries_shape: Shape | None = None, memory_shape: Shape | None = None) -> None:
        for projection in (self.query_projection, self.key_value_projection, self.joint_projection):
            if projection is not None:
                projection.build((None, None, self.d_model))
        if self.output_projection is not None:
            self.output_projection.build((None, None, self.query_width))
        for norm in (self.query_norm, self.key_norm):
            if norm is not None:
                norm.build((None, None, None, self.head_dim))

    def call(
        self,
        queries: Tensor,
        memory: Tensor | None = None,
        visible: Tensor | None = None,
        cache: Any = None,
        place: Any = 0,
        positions: Tensor | None = None,
        trace: Trace | None = None,
        mask: Tensor | None = None,
        queries_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        values: Tensor | None = None,
    ) -> Any:
        """Attend from `queries` to themselves, or to `memory` in cross-attention.

        Args:
            queries: (B, T, D).
            memory: for cross-attention: (B, S, D), or its `KeyValueCache` from `project_memory`.
            values: for cross-attention: what the values are computed from, (B, S, D), if it is not the `memory`, which
                then only gives the keys: query, key and value of the paper are `layer(query, key, values=value)`.
            visible: boolean, broadcastable to (B, N, T, S), or (B, T, S); True where a query may attend. It replaces
                `causal` and Keras masks. None: what these leave visible, or everything.
            cache: for self-attention in generation: a `KeyValueCache` or `PrefixedCache` for all positions, or None.
            place: cache index at which the new keys and values are stored.
            positions: positions of the queries, (T,) or (B, T), used for rotary positions. None: 0 to T - 1, or
                `place` onwards with a `KeyValueCache`.
            trace: a `Trace` that records the attention weights and may switch heads off, or None.
            mask, queries_mask, memory_mask: set by Keras, see the class; `mask` if `queries` are the only tensor.

        Returns:
            The output (B, T, D); with `cache`, a pair (output, updated cache).

        Raises:
            ValueError: `visible` is not boolean or does not fit, or the inputs are not those of this kind of attention.
        """
        self._check_inputs(memory, values)
        mask = self._mask_of_keys(memory, mask, queries_mask, memory_mask)
        if positions is None and isinstance(cache, KeyValueCache):
            positions = ops.cast(place, "int32") + ops.arange(ops.shape(queries)[1])
        visible = self._visible(visible, mask, queries, memory, cache, place)
        query, new = self._project(queries, memory, values, positions)
        stored = memory if isinstance(memory, KeyValueCache) else None
        if cache is not None:
            stored = cache = cache.write(place, *new)
        if stored is not None:
            mixed, weights = stored.attend(query, self.num_kv_heads, visible)  # (B, T, N, H)
            if trace is not None:
                trace.record("attention", self, weights)
        else:
            keys, values = new
            mixed = self._attend(query, keys, values, visible, trace)
        if trace is not None:
            mixed = trace.switched(self, mixed)
        attended = ops.reshape(mixed, (*ops.shape(mixed)[:2], self.query_width))
        if self.output_projection is not None:
            attended = self.output_projection(attended)
        return attended if cache is None else (attended, cache)

    def _mask_of_keys(self, memory: Any, mask: Tensor, queries_mask: Tensor, memory_mask: Tensor) -> Tensor | None:
        """Return the Keras mask of the keys, or None."""
        if self.cross:  # the mask that Keras passes for a cache is a cache of None
            return None if isinstance(memory, KeyValueCache) else memory_mask
        return queries_mask if mask is None else mask

    def _sizes(self, queries: Tensor, memory: Tensor, cache: Any) -> tuple[Any, ...]:
        """Return the axes (B, N, T, S) of the attention weights; None where one is not known."""
        read = memory if self.cross else queries if cache is None else cache
        length = read.length if isinstance(read, (KeyValueCache, PrefixedCache)) else read.shape[1]
        return queries.shape[0], self.num_heads, queries.shape[1], length

    def _visible(
        self, visible: Tensor, keras_mask: Tensor, queries: Tensor, memory: Tensor, cache: Any, place: Tensor
    ) -> Tensor | None:
        """Return the visible keys: `visible` if given, otherwise from the Keras mask and `causal`; None for all."""
        if visible is not None:
            return masks.checked(visible, self._sizes(queries, memory, cache))
        if keras_mask is not None:
            visible = masks.padding(keras_mask)
        if self.causal:
            length = ops.shape(queries)[1]
            keys = length if cache is None else cache.length
            causal = masks.causal(place + ops.arange(length), ops.arange(keys))
            visible = causal if visible is None else ops.logical_and(visible, causal)
        return visible

    def _check_inputs(self, memory: Tensor, values: Tensor) -> None:
        """Raise `ValueError` if inputs are missing or would not be read."""
        if self.cross and memory is None:
            raise ValueError("Cross-attention needs a memory to attend to.")
        if not self.cross and (memory is not None or values is not None):
            raise ValueError("Self-attention reads the queries alone: a memory or values need cross=True.")
        if values is not None and isinstance(memory, KeyValueCache):
            raise ValueError("A cache of the memory has its values already.")

    def project_memory(self, memory: Tensor) -> KeyValueCache:
        """Return the `KeyValueCache` of `memory` (B, S, D), which all later queries reuse."""
        return KeyValueCache.of(*self._keys_and_values(memory))

    def _keys_and_values(self, memory: Tensor, values: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return keys of `memory` and values of `values` or `memory`, each (B, S, K, H), of (B, S, D)."""
        if self.key_value_projection is None:
            keys = of_memory = self._split(memory, self.num_kv_heads)
            values = of_memory if values is None else self._split(values, self.num_kv_heads)
        else:
            keys, of_memory = self._split_pair(self.key_value_projection(memory))
            values = of_memory if values is None else self._split_pair(self.key_value_projection(values))[1]
        return self._normalised(self.key_norm, keys), values

    @property
    def fused_widths(self) -> dict[str, tuple[int, ...]]:
        """The widths of the projections that one kernel holds side by side, by the path of that kernel."""
        pair = (self.kv_width, self.kv_width)
        fused = [(self.joint_projection, (self.query_width, *pair)), (self.key_value_projection, pair)]
        return {projection.kernel.path: widths for projection, widths in fused if projection is not None}

    def empty_cache(self, batch_size: int, length: int) -> KeyValueCache:
        """Return a cache of zeros for the keys and values of `length` positions."""
        keys, values = (self.head_dim, length), (length, self.head_dim)
        return KeyValueCache(
            *(ops.zeros((batch_size * self.num_kv_heads, *shape), self.compute_dtype) for shape in (keys, values))
        )

    def _project(self, queries: Tensor, memory: Tensor, value_input: Tensor, positions: Tensor) -> tuple[Tensor, Any]:
        """Return query (B, T, N, H) and (keys, values), each (B, S, K, H), or None if `memory` is a cache."""
        if self.cross:
            projected = queries if self.query_projection is None else self.query_projection(queries)
            query = self._normalised(self.query_norm, self._split(projected, self.num_heads))
            return query, None if isinstance(memory, KeyValueCache) else self._keys_and_values(memory, value_input)
        if self.joint_projection is None:
            query = keys = values = self._split(queries, self.num_heads)
            return self._normalised_and_rotated(query, keys, values, positions)
        joint = self.joint_projection(queries)  # (B, T, (N + 2K) H)
        if self.kv_width == self.query_width:  # one split: its gradient is a concatenation, without sums
            query, keys, values = (self._split(part, self.num_heads) for part in ops.split(joint, 3, axis=-1))
        else:
            query = self._split(joint[..., : self.query_width], self.num_heads)
            keys, values = self._split_pair(joint[..., self.query_width :])
        return self._normalised_and_rotated(query, keys, values, positions)

    def _normalised(self, norm: RMSNorm | None, heads: Tensor) -> Tensor:
        return heads if norm is None else norm(heads)

    def _normalised_and_rotated(
        self, query: Tensor, keys: Tensor, values: Tensor, positions: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return query and keys, normalised and rotated by their positions where the layer does so, and the values."""
        query, keys = self._normalised(self.query_norm, query), self._normalised(self.key_norm, keys)
        if self.rotary:
            positions = ops.arange(ops.shape(query)[1]) if positions is None else positions
            query, keys = (rotate(part, positions, self.rotary_base) for part in (query, keys))
        return query, (keys, values)

    def _attend(self, query: Tensor, keys: Tensor, values: Tensor, visible: Tensor, trace: Trace | None) -> Tensor:
        if trace is None and self.dropout.rate == 0:
            return backend.attend(query, keys, values, visible)
        weights = attention_weights(query, keys, visible)
        if trace is not None:
            trace.record("attention", self, weights)
        groups = self.num_heads // self.num_kv_heads
        values = ops.repeat(values, groups, axis=2) if groups > 1 else values
        weights = self.dropout(ops.cast(weights, values.dtype))
        return ops.einsum("bnts,bsnh->btnh", weights, values)

    def _dense(self, units: int, name: str, like: int | None = None, factor: float = 1.0) -> Projection:
        # `factor` times the Glorot bound of a separate projection with `like` outputs, although several are fused.
        scale = factor**2 * (self.d_model + units) / (self.d_model + (like or units))
        initializer = keras.initializers.VarianceScaling(scale, mode="fan_avg", distribution="uniform")
        options = {"use_bias": self.bias, "kernel_initializer": initializer, "dtype": self.dtype_policy}
        return Projection(units, name=name, **options)

    def _split(self, x: Tensor, heads: int) -> Tensor:
        return ops.reshape(x, (*ops.shape(x)[:2], heads, self.head_dim))

    def _split_pair(self, pair: Tensor) -> tuple[Tensor, ...]:
        return tuple(self._split(half, self.num_kv_heads) for half in ops.split(pair, 2, axis=-1))  # each (B, S, K, H)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "d_model": self.d_model, "num_heads": self.num_heads, "num_kv_heads": self.num_kv_heads,
            "head_dim": self.head_dim, "cross": self.cross, "causal": self.causal, "rotary": self.rotary,
            "rotary_base": self.rotary_base, "dropout": self.dropout.rate, "bias": self.bias,
            "qk_norm": self.qk_norm, "norm_epsilon": self.norm_epsilon,
            "residual_init": self.residual_init, "projections": self.projections,
        }  # fmt: skip
