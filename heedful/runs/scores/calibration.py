"""How far probabilities can be trusted: the calibration error, and the temperature that mends it (Guo et al. 2017).

Axes: N predictions, C classes.
"""

import numpy as np

BINS = 15
TEMPERATURES = 0.05, 20.0  # the range that is searched
STEPS = 60  # of the search; each shortens the interval to 0.62 of its length


def calibration_error(probabilities: np.ndarray, right: np.ndarray) -> float:
    """Return the expected calibration error: the mean gap between confidence and accuracy, over bins of confidence.

    Args:
        probabilities: of what was predicted (N,).
        right: whether it was right (N,).

    >>> calibration_error(np.array([0.8, 0.8]), np.array([True, False])).__round__(3)
    0.3
    """
    bins = np.minimum((probabilities * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bins, probabilities, BINS) - np.bincount(bins, right.astype(float), BINS)
    return float(np.abs(gaps).sum() / max(1, len(right)))


def best_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """Return the temperature whose division of the logits gives the labels the highest likelihood.

    Without a wrong decision, or at a bound of the search, there is no such temperature, and the result is 1.

    Args:
        logits: (N, C).
        labels: the class of each text, integers (N,), or which classes it has, 0 or 1 (N, C).
    """
    low, high = np.log(TEMPERATURES)
    golden = (5**0.5 - 1) / 2
    for _ in range(STEPS):
        one, other = high - golden * (high - low), low + golden * (high - low)
        if _loss(logits / np.exp(one), labels) < _loss(logits / np.exp(other), labels):
            high = other
        else:
            low = one
    temperature = float(np.exp((low + high) / 2))
    decided = logits > 0 if labels.ndim == 2 else logits.argmax(-1)
    at_bound = not 1.01 * TEMPERATURES[0] < temperature < TEMPERATURES[1] / 1.01
    return 1.0 if at_bound or np.array_equal(decided, labels) else temperature


def _loss(logits, labels):
    """Return the mean negative log-likelihood in nats."""
    if labels.ndim == 2:
        return float(np.mean(np.logaddexp(0, logits) - labels * logits))
    top = logits.max(-1, keepdims=True)
    normaliser = np.log(np.exp(logits - top).sum(-1)) + top[:, 0]
    return float(np.mean(normaliser - logits[np.arange(len(labels)), labels]))
