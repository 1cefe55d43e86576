"""Key/value caches for generation: keys and values are projected once and reused by every later query.

Axes: B batch, T query length, S key length, N query heads, K key heads (K divides N), H head size.
"""

from typing import Any, NamedTuple

import numpy as np
from keras import ops

from heedful.backend import Tensor
from heedful.layers.softmax import softmax


class KeyValueCache(NamedTuple):
    """Projected keys (B K, H, S) and values (B K, S, H).

    The layout suits XLA on CPUs: both matrix products of attention read along rows of memory, and B and K are merged
    into one axis, as in XLA's batched products. See docs/performance.md.
    """

    keys: Any
    values: Any

    @classmethod
    def of(cls, keys: Tensor, values: Tensor) -> "KeyValueCache":
        """Create a cache of keys and values (B, S, K, H)."""
        length, size = keys.shape[1], keys.shape[3]
        return cls(
            ops.reshape(ops.transpose(keys, (0, 2, 3, 1)), (-1, size, length)),
            ops.reshape(ops.swapaxes(values, 1, 2), (-1, length, size)),
        )

    @property
    def length(self) -> int:
        """Number of positions S."""
        return self.values.shape[1]

    def write(self, place: Tensor, keys: Tensor, values: Tensor) -> "KeyValueCache":
        """Return the cache with keys and values (B, T, K, H) stored at `place` onwards.

        Raises:
            ValueError: there is no room for them; not known inside a compiled loop, where `place` has no value.
        """
        if isinstance(place, (int, np.integer)) and place + keys.shape[1] > self.length:
            raise ValueError(
                f"The cache holds {self.length} positions; {keys.shape[1]} more do not fit at position {place}."
            )
        new = KeyValueCache.of(keys, values)
        return KeyValueCache(
            ops.slice_update(self.keys, (0, 0, place), new.keys),
            ops.slice_update(self.values, (0, place, 0), new.values),
        )

    def attend(self, query: Tensor, key_heads: int, visible: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the attention output (B, T, N, H) for `query`, and the weights (B, N, T, S).

        Args:
            query: (B, T, N, H).
            key_heads: K.
            visible: boolean, broadcastable to (B, N, T, S), or None.
        """
        weights = softmax(self.scores(query, key_heads), visible)
        return self.mix(weights, key_heads), weights

    def scores(self, query: Tensor, key_heads: int) -> Tensor:
        """Return the float32 scores (B, N, T, S) of the keys for `query` (B, T, N, H).

        The N / K queries that share a key head are rows of one matrix product; keys are never repeated.
        """
        length, heads, size = query.shape[1:]
        query = ops.reshape(ops.swapaxes(query, 1, 2), (-1, heads // key_heads * length, size))
        scores = ops.matmul(query * size**-0.5, self.keys)  # (B K, N / K x T, S)
        return ops.cast(ops.reshape(scores, (-1, heads, length, self.keys.shape[-1])), "float32")

    def mix(self, weights: Tensor, key_heads: int) -> Tensor:
        """Return the sums (B, T, N, H) of the values, weighted by `weights` (B, N, T, S)."""
        heads, length, source_length = weights.shape[1:]
        read = ops.cast(weights, self.values.dtype)
        read = ops.reshape(read, (-1, heads // key_heads * length, source_length))
        mixed = ops.reshape(ops.matmul(read, self.values), (-1, heads, length, self.values.shape[-1]))
        return ops.swapaxes(mixed, 1, 2)


class PrefixedCache(NamedTuple):
    """A cache in two parts: the prompt, shared by all hypotheses of a text, and the tokens generated since.

    Attention treats it as one cache in which the S prompt positions come first; `visible` covers both parts.
    """

    prompt: KeyValueCache
    past: KeyValueCache

    @property
    def length(self) -> int:
        """Number of positions of both parts."""
        return self.prompt.length + self.past.length

    def write(self, place: Tensor, keys: Tensor, values: Tensor) -> "PrefixedCache":
        """Return the cache with keys and values (B, T, K, H) stored in `past`, at `place` onwards."""
        return self._replace(past=self.past.write(place, keys, values))

    def attend(self, query: Tensor, key_heads: int, visible: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Attend to both parts; see `KeyValueCache.attend`."""
        weights = softmax(ops.concatenate([part.scores(query, key_heads) for part in self], axis=-1), visible)
        length = self.prompt.values.shape[1]
        mixed = self.prompt.mix(weights[..., :length], key_heads)
        return mixed + self.past.mix(weights[..., length:], key_heads), weights
