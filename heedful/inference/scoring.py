"""Log-probabilities of given translations, token by token.

Axes: B batch, S source length, T target length, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from heedful import backend
from heedful.backend import Tensor
from heedful.core.special_tokens import END_ID, START_ID
from heedful.data.encoded import EncodedPairs, Filtered
from heedful.data.examples import teacher_forcing_batch
from heedful.data.lengths import cut, round_up, run_by_length
from heedful.data.ragged import Ragged

LENGTH_STEP = 8  # lengths are rounded up to multiples of this


class Scorer:
    """Scores targets given their sources.

    Args:
        model: a `Transformer` or an `Ensemble`.
        batch_size: pairs scored together.
    """

    def __init__(self, model: Any, batch_size: int = 64):
        self.batch_size, self.max_length = batch_size, model.max_length

        def log_probabilities(source: Tensor, target: Tensor, labels: Tensor) -> Tensor:
            logits = ops.cast(model((source, target)), "float32")
            chosen = ops.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
            return chosen - ops.logsumexp(logits, axis=-1)

        def next_token(source: Tensor, target: Tensor, position: Tensor) -> Tensor:
            logits = ops.cast(model((source, target)), "float32")[0]
            return ops.log_softmax(ops.take(logits, position, axis=0))

        self._program = backend.compiled(log_probabilities, model)
        self._next_token = backend.compiled(next_token, model)

    def __call__(self, sources: list[list[int]], targets: list[list[int]]) -> list[np.ndarray]:
        """Return the log-probability in nats of each token of each target, the end token last.

        Args:
            sources, targets: lists of ids, without start and end tokens.
        """

        def run(chosen: Sequence[int]) -> list[np.ndarray]:
            pairs = EncodedPairs(
                Ragged.of([sources[i] for i in chosen]), Ragged.of([targets[i] for i in chosen]),
                Filtered(len(chosen), 0, 0),
            )  # fmt: skip
            rows = np.full(self.batch_size, -1)
            rows[: len(chosen)] = np.arange(len(chosen))
            source_length, target_length = (
                self._rounded(int(side.lengths.max()) + 1) for side in (pairs.source, pairs.target)
            )
            batch = teacher_forcing_batch(pairs, rows, (source_length, target_length))
            scores = backend.to_numpy(self._program(batch["source"], batch["target"], batch["labels"]))
            return [np.asarray(scores[row, : len(targets[index]) + 1]) for row, index in enumerate(chosen)]

        lengths = [(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
        return run_by_length(lengths, lambda order: cut(order, self.batch_size), run)

    def next_token(self, source: list[int], begun: list[int]) -> np.ndarray:
        """Return the log-probability in nats of every token (V,) after the ids `begun`, given the ids of the source."""
        arrays = []
        for ids in ([*source, END_ID], [START_ID, *begun]):
            array = np.zeros((1, self._rounded(len(ids))), np.int32)
            array[0, : len(ids)] = ids
            arrays.append(array)
        return np.asarray(backend.to_numpy(self._next_token(*arrays, np.array(len(begun), np.int32))))

    def _rounded(self, length: int) -> int:
        return round_up(length, LENGTH_STEP, self.max_length)
