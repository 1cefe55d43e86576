"""Reproducible orders: a random stream for each use of random numbers, and endless passes over items."""

from collections.abc import Callable

import numpy as np

# Each use of random numbers has its own stream, so that no two draw the same numbers. Do not change the stream numbers:
# the result of every training run would change.
BATCHES, PAIRS, WINDOWS, PACKED_ROWS, TRAINING_MASKS, SCORING_MASKS, SEGMENTATIONS = range(7)


def random_numbers(seed: int, stream: int, *which: int) -> np.random.Generator:
    """Return the random generator for one part of a stream; `which` selects it, for example by batch number."""
    return np.random.default_rng((seed, stream, *which))


def cycle(order: Callable[[int], np.ndarray], size: int, first: int, count: int) -> np.ndarray:
    """Return `count` items, starting at number `first`, of an endless sequence that cycles through `size` items.

    Args:
        order: function from the number of a pass to the items in the order of that pass (size,).
    """
    passes, within = np.divmod(first + np.arange(count), size)
    return np.concatenate([order(number)[within[passes == number]] for number in range(passes[0], passes[-1] + 1)])
