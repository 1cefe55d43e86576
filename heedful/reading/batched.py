"""A compiled function over texts of any length and number.

Axes: B texts of a batch, T length with start and end token.
"""

import math

import numpy as np

from heedful import backend
from heedful.data.encoded import Ragged
from heedful.data.examples import enclosed

STEP = 8  # lengths are rounded up to this: few shapes to compile


class Batched:
    """Runs `function(ids (B, T))` over lists of ids, longest first, and gives the rows of its result in their order.

    Args:
        function: from ids to an array whose first axis is B.
        model: whose weights it reads.
        length: longest text with start and end token; the rest of a longer one is not read.
        batch_size: B.
    """

    def __init__(self, function, model, length, batch_size=64):
        self.length, self.batch_size = length, batch_size
        self.cut = 0  # texts so far that were too long to be read to their end
        self._program = backend.compiled(function, model)

    def __call__(self, texts):
        """Return one row for each list of ids in `texts`."""
        self.cut += sum(len(ids) > self.length - 2 for ids in texts)
        texts = [ids[: self.length - 2] for ids in texts]
        order = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
        results = [None] * len(texts)
        for start in range(0, len(order), self.batch_size):
            chosen = order[start : start + self.batch_size]
            size = min(self.batch_size, 1 << (len(chosen) - 1).bit_length())  # 1, 2, 4, ...: few shapes here too
            pieces = Ragged.of([texts[index] for index in chosen])
            length = min(math.ceil((len(texts[chosen[0]]) + 2) / STEP) * STEP, self.length)
            rows = np.where(np.arange(size) < len(chosen), np.arange(size), -1)
            found = backend.to_numpy(self._program(enclosed(pieces, rows, length)))
            for index, row in zip(chosen, found[: len(chosen)], strict=True):
                results[index] = row
        return results
