"""The work that the stages measure: random training examples, models and sentences."""

import numpy as np

VOCABULARY, LENGTH, WRITTEN = 16_000, 64, 40  # WRITTEN: tokens of a translation at most


class RandomPairs:
    """Training examples: one batch of random pairs without padding, again and again."""

    batches_per_epoch = 1.0

    def __init__(self, tokens):
        rows = max(8, tokens // LENGTH)
        rng = np.random.default_rng(0)
        source, labels = (rng.integers(4, VOCABULARY, (rows, LENGTH), dtype=np.int32) for _ in range(2))
        target = np.concatenate([np.full((rows, 1), 2, np.int32), labels[:, :-1]], axis=1)
        self.arrays = {
            "source": source,
            "target": target,
            "labels": labels,
            "weights": np.ones_like(labels, np.float32),
        }

    def batch(self, number):
        return self.arrays

    def tokens(self, number):
        return self.arrays["labels"].size

    def shape(self, number):
        return (len(self.arrays["labels"]), LENGTH, LENGTH)

    def first_of_each_shape(self):
        return [0]


def model_config(size):
    """Return the architecture of a size."""
    from heedful.config import ModelConfig

    return ModelConfig(size=size, tie="all", max_length=LENGTH, dropout=0.1)


def new_model(size, precision="float32"):
    """Return a random translation model of a size."""
    from heedful import Transformer, backend
    from heedful.config import TrainConfig

    backend.set_seed(1)
    policy = TrainConfig(precision=precision).dtype_policy
    return Transformer(VOCABULARY, VOCABULARY, dtype=policy, **model_config(size).keywords())


def vocabulary():
    """Return a tokenizer of as many words as the models have."""
    from heedful.data.tokenizer import Tokenizer

    return Tokenizer.train([" ".join(f"word{number}" for number in range(VOCABULARY - 4))], "word", VOCABULARY)


def random_sources(options):
    """Return lists of random ids to translate."""
    rng = np.random.default_rng(0)
    return [rng.integers(4, VOCABULARY, size).tolist() for size in rng.integers(5, 40, options.sentences)]
