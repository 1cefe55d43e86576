"""Sentence pairs as what a translator is trained on.

Axes: B batch, S source length, T target length.
"""

import numpy as np

from heedful.data.tokenizer import END_ID, START_ID


def source_ids(source, rows, length):
    """Return source sequences with their end token, padded: (len(rows), length)."""
    return _with_end(source.padded(rows, length), rows)


def translation(pairs, rows, shape):
    """Return a batch for teacher forcing (Vaswani et al. 2017, section 3.1: outputs shifted right by one).

    Args:
        pairs: `EncodedPairs`.
        rows: which pairs; -1 makes an empty row that counts for nothing.
        shape: (source length, target length), each with room for one more token than the longest sequence.

    Returns:
        source (B, S), target (B, T) that starts with the start token, labels (B, T) that end with the end token, and
        float32 weights (B, T), 1 where a label is real.
    """
    source_length, target_length = shape
    labels = _with_end(pairs.target.padded(rows, target_length), rows)
    target = np.zeros_like(labels)
    target[:, 0] = START_ID
    target[:, 1:] = labels[:, :-1]
    target[target == END_ID] = 0  # behind the last label there is nothing to predict, so nothing to read
    return {
        "source": source_ids(pairs.source, rows, source_length),
        "target": target,
        "labels": labels,
        "weights": (labels != 0).astype(np.float32),
    }


class TranslationExamples:
    """The batches of a `BatchPlan` over pairs, as arrays; batch n is a pure function of (seed, n).

    What trains a model has this form: `batch(n)`, `tokens(n)` and `shape(n)`, `finite()` and a text that describes it.

    Args:
        pairs: `EncodedPairs`.
        plan: their `BatchPlan`.
    """

    def __init__(self, pairs, plan):
        self.pairs, self.plan = pairs, plan

    def batch(self, number):
        """Return batch `number` as `translation` makes it."""
        shape, rows = self.plan.batch(number)
        return translation(self.pairs, rows, shape.lengths)

    def finite(self):
        """Yield batches in which every pair comes exactly once."""
        for shape, rows in self.plan.finite():
            yield translation(self.pairs, rows, shape.lengths)

    def tokens(self, number):
        """Return how many real target tokens batch `number` has."""
        return self.plan.target_tokens(number)

    def shape(self, number):
        """Return the shape of batch `number`."""
        shape, _ = self.plan.batch(number)
        return (shape.sentences, *shape.lengths)

    def __str__(self):
        return str(self.plan)


def _with_end(ids, rows):
    real = np.asarray(rows) >= 0
    lengths = (ids != 0).sum(axis=1)
    ids[np.flatnonzero(real), lengths[real]] = END_ID
    return ids
