"""The loss of a model that has learned nothing but how frequent each label is."""

from collections.abc import Iterable, Mapping

import numpy as np


def constant_loss(batches: Iterable[Mapping[str, np.ndarray]], several_labels: bool = False) -> float:
    """Return the expected loss of the same guess at every place, in nats per label.

    The entropy of a few labels is lower than that of the text they come from, so (K - 1) / 2N is added for K classes
    among N labels (Miller 1955, "Note on the bias of information estimates").

    Args:
        batches: with `labels` and their `weights`; class indices (B, T), or with `several_labels` which classes each
            text has, 0 or 1 (B, C), and weights (B, 1).
    """
    total, counts = 0.0, np.zeros(0)
    for batch in batches:
        labels, weights = batch["labels"], np.asarray(batch["weights"], np.float64)
        total += weights.sum()
        added = (labels * weights).sum(0) if several_labels else np.bincount(labels.ravel(), weights.ravel())
        size = max(len(counts), len(added))
        counts = np.pad(counts, (0, size - len(counts))) + np.pad(added, (0, size - len(added)))
    shares = counts / max(total, 1e-9)
    if several_labels:
        return float(_entropy(shares) + _entropy(1 - shares))
    classes = int(np.count_nonzero(shares))
    return float(_entropy(shares) + max(classes - 1, 0) / (2 * max(float(total), 1e-9)))


def _entropy(shares):
    shares = shares[shares > 0]
    return -(shares * np.log(shares)).sum()
