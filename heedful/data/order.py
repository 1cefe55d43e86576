"""Orders that only a seed decides: what is drawn from which random numbers, and reading round and round."""

import numpy as np

# Each use of random numbers has a stream of its own, so that none repeats what another has drawn. The numbers stay as
# they are: with others every training would come out differently.
BATCHES, PAIRS, WINDOWS, PACKED_ROWS, TRAINING_MASKS, SCORING_MASKS = range(6)


def random_numbers(seed, stream, *which):
    """Return the generator of `which` part of a stream, such as the number of a batch."""
    return np.random.default_rng((seed, stream, *which))


def cycle(order, size, first, count):
    """Return `count` items, from number `first` on, of an endless sequence that reads `size` items again and again.

    Args:
        order: from the number of a pass to its items in their order (size,).
    """
    passes, within = np.divmod(first + np.arange(count), size)
    return np.concatenate([order(number)[within[passes == number]] for number in range(passes[0], passes[-1] + 1)])
