"""Cross-attention of several translations in one pass, as bytes for a log.

Axes: B sentences, L layers, N heads, T target length, S source length.
"""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from heedful import backend
from heedful.core.special_tokens import END_ID, START_ID
from heedful.data.lengths import round_up
from heedful.data.padding import padded_batch
from heedful.layers import Trace

LENGTH_STEP = 16  # lengths are rounded up to multiples of this, so that few programs are compiled


class CrossAttention:
    """Reads the cross-attention of a model that may still be trained.

    Args:
        model: a `Transformer`.
    """

    def __init__(self, model: Any):
        self.max_length = model.max_length
        paths = [f"decoder/block_{layer}/cross_attention" for layer in range(model.architecture.depths["decoder"])]

        def read(source, target):
            trace = Trace()
            model((source, target), trace=trace)
            return ops.stack([trace[path] for path in paths], axis=1)

        self._program = backend.compiled(read, model, brief=True)

    def __call__(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[dict[str, Any]]:
        """Return for each pair of ids, without start and end tokens, its ids and its attention.

        `source` and `target` are the ids, cut to what the model reads. `cross` is the attention (L, N, T, S) as base64
        of bytes, 255 for a weight of 1; its rows are the tokens of the target and the end, its columns those of the
        source and the end. `shape` has its four sizes.
        """
        max_tokens = self.max_length - 1
        sources, targets = ([list(ids)[:max_tokens] for ids in side] for side in (sources, targets))
        weights = np.asarray(backend.to_numpy(self._program(
            self._batch([[*ids, END_ID] for ids in sources]), self._batch([[START_ID, *ids] for ids in targets])
        )))  # fmt: skip
        return [
            {"source": source, "target": target} | as_bytes(row[:, :, : len(target) + 1, : len(source) + 1])
            for source, target, row in zip(sources, targets, weights, strict=True)
        ]

    def _batch(self, rows):
        length = min(self.max_length, round_up(max(map(len, rows)), LENGTH_STEP))
        return padded_batch(rows, length, "max_length", truncation=False)["ids"]


def as_bytes(weights: np.ndarray) -> dict[str, Any]:
    """Return attention weights from 0 to 1 as base64 of bytes, with their shape."""
    steps = np.rint(np.clip(weights, 0, 1) * 255).astype(np.uint8)
    return {"cross": base64.b64encode(steps.tobytes()).decode(), "shape": list(weights.shape)}
