"""How likely a model finds given translations, token by token.

Axes: B batch, S source length, T target length, V vocabulary.
"""

import numpy as np
from keras import ops

from heedful import backend
from heedful.data.encoded import EncodedPairs, Filtered, Ragged
from heedful.data.examples import translation

STEP = 8  # lengths are rounded up to this: few shapes to compile


class Scorer:
    """Scores targets given their sources.

    Args:
        model: a `Transformer` or an `Ensemble`.
        batch_size: pairs read together.
    """

    def __init__(self, model, batch_size=64):
        self.batch_size, self.max_length = batch_size, model.max_length

        def log_probabilities(source, target, labels):
            logits = ops.cast(model((source, target)), "float32")
            chosen = ops.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
            return chosen - ops.logsumexp(logits, axis=-1)

        self._program = backend.compiled(log_probabilities, model)

    def __call__(self, sources, targets):
        """Return the log-probability in nats of each token of each target, the end token last: a list of arrays.

        Args:
            sources, targets: lists of ids, without start and end tokens.
        """
        results = [None] * len(sources)
        order = sorted(range(len(sources)), key=lambda i: (len(sources[i]), len(targets[i])))
        for start in range(0, len(order), self.batch_size):
            chosen = order[start : start + self.batch_size]
            pairs = EncodedPairs(
                Ragged.of([sources[i] for i in chosen]), Ragged.of([targets[i] for i in chosen]),
                Filtered(len(chosen), 0, 0),
            )  # fmt: skip
            rows = np.full(self.batch_size, -1)
            rows[: len(chosen)] = np.arange(len(chosen))
            longest = [int(side.lengths.max()) + 1 for side in (pairs.source, pairs.target)]
            shape = tuple(max(least, min(-(-least // STEP) * STEP, self.max_length)) for least in longest)
            batch = translation(pairs, rows, shape)
            made = backend.to_numpy(self._program(batch["source"], batch["target"], batch["labels"]))
            for row, index in enumerate(chosen):
                results[index] = np.asarray(made[row, : len(targets[index]) + 1])
        return results
