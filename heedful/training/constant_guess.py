"""The loss of a model that has learned nothing but how frequent each label is."""

import math
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from heedful.data.examples import Examples

SAMPLE = 200_000  # training labels whose frequencies are close enough to those of all

Batches = Iterable[Mapping[str, np.ndarray]]


def constant_loss(training: Batches, validation: Batches, several_labels: bool = False) -> float:
    """Return the loss of the same guess at every place, the frequencies of the training labels; in nats per label.

    Each class is counted once more than it occurs (Laplace), so that none is impossible.

    Args:
        training, validation: batches with `labels` and their `weights`; class indices (B, T), or with `several_labels`
            which classes each text has, 0 or 1 (B, C), and weights (B, 1).
    """
    (seen, seen_total), (scored, total) = (_counts(batches, several_labels) for batches in (training, validation))
    size = max(len(seen), len(scored))
    seen, scored = (np.pad(counts, (0, size - len(counts))) for counts in (seen, scored))
    if several_labels:
        shares = (seen + 1) / (seen_total + 2)
        losses = scored * np.log(shares) + (total - scored) * np.log(1 - shares)
    else:
        occurs = seen + scored > 0
        losses = scored[occurs] * np.log((seen[occurs] + 1) / (seen_total + occurs.sum()))
    return float(-losses.sum() / max(total, 1e-9))


def sampled(examples: Examples) -> Iterator[Mapping[str, np.ndarray]]:
    """Yield training batches with `SAMPLE` tokens, or one epoch if that has fewer."""
    tokens = 0
    for number in range(math.ceil(examples.batches_per_epoch)):
        yield examples.batch(number)
        tokens += examples.tokens(number)
        if tokens >= SAMPLE:
            return


def _counts(batches, several_labels):
    """Return how often each class occurs, by weight, and the sum of the weights."""
    total, counts = 0.0, np.zeros(0)
    for batch in batches:
        labels, weights = batch["labels"], np.asarray(batch["weights"], np.float64)
        total += weights.sum()
        added = (labels * weights).sum(0) if several_labels else np.bincount(labels.ravel(), weights.ravel())
        size = max(len(counts), len(added))
        counts = np.pad(counts, (0, size - len(counts))) + np.pad(added, (0, size - len(added)))
    return counts, total
