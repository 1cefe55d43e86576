"""A recorder of attention weights and block outputs in a forward pass, which can also switch heads off.

Axes: B batch, T query length, S key length, N query heads, H head size, D d_model.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras
from keras import ops

from heedful.backend import Tensor


class Trace:
    """Arrays recorded in a forward pass, by layer path: `trace["decoder/block_3/cross_attention"]`.

    Pass one to a model's call and read it afterwards. It is not a dict because Keras copies dicts that are passed to a
    layer.

    Args:
        kinds: what to record: `attention`, the weights (B, N, T, S) of each `MultiHeadAttention`; `output`, the vectors
            (B, T, D) that each block returns.
        switches: by the path of an attention layer, factors (B, N) of what each head returns: 0 switches a head off.
    """

    def __init__(self, kinds: Iterable[str] = ("attention",), switches: Mapping[str, Tensor] | None = None):
        self.kinds, self.switches = tuple(kinds), switches or {}
        self.records: dict[str, Tensor] = {}

    def record(self, kind: str, layer: keras.Layer, array: Tensor) -> None:
        """Store the array of a layer if its kind is in `kinds`."""
        if kind in self.kinds:
            self.records[path_in_model(layer)] = array

    def switched(self, layer: keras.Layer, mixed: Tensor) -> Tensor:
        """Return the mixed values (B, T, N, H) of an attention layer times the factors of its heads."""
        factors = self.switches.get(path_in_model(layer))
        return mixed if factors is None else mixed * ops.cast(factors, mixed.dtype)[:, None, :, None]

    def __getitem__(self, path: str) -> Tensor:
        return self.records[path]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.records)


def path_in_model(layer: keras.Layer) -> str:
    """Return the path of a layer inside its model."""
    return layer.path.split("/", 1)[-1]
