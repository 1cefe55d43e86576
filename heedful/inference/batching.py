"""Batched calls of a compiled function on any number of texts of any length.

Axes: B texts of a batch, T length with start and end token.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from heedful import backend
from heedful.data.examples import enclosed
from heedful.data.lengths import cut, next_power_of_two, round_up, run_by_length
from heedful.data.ragged import Ragged
from heedful.inference.predictor import Warn, warn_of_cut_texts

LENGTH_STEP = 8  # lengths are rounded up to multiples of this


class BatchedProgram:
    """Applies `function(ids (B, T))` to lists of ids in batches; returns the result rows in their order.

    Args:
        function: from ids to an array whose first axis is B.
        model: the model whose weights it uses.
        length: maximum length, start and end token included; longer texts are truncated.
        batch_size: B.
    """

    def __init__(self, function: Callable[..., Any], model: Any, length: int, batch_size: int = 64):
        self.length, self.batch_size = length, batch_size
        self._program = backend.compiled(function, model)

    def __call__(self, texts: Sequence[list[int]], warn: Warn | None = None, first: int = 1) -> list[Any]:
        """Return one row for each list of ids in `texts`; `warn` as in `warn_of_cut_texts`.

        `first`: number of the first text, in warnings.
        """
        max_tokens = self.length - 2
        messages = [
            f"text {number} has {len(ids)} tokens; only the first {max_tokens} are read."
            for number, ids in enumerate(texts, start=first)
            if len(ids) > max_tokens
        ]
        warn_of_cut_texts(messages, warn)
        texts = [ids[:max_tokens] for ids in texts]

        def run(chosen: Sequence[int]) -> np.ndarray:
            size = next_power_of_two(len(chosen), self.batch_size)
            length = round_up(len(texts[chosen[0]]) + 2, LENGTH_STEP, self.length)
            rows = np.where(np.arange(size) < len(chosen), np.arange(size), -1)
            ids = enclosed(Ragged.of([texts[index] for index in chosen]), rows, length)
            return backend.to_numpy(self._program(ids))[: len(chosen)]

        return run_by_length([len(ids) for ids in texts], lambda order: cut(order, self.batch_size), run)
