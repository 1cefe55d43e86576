"""The work for all engines: a recipe's text, tokenized and in batches, and the sizes of the model.

It imports no backend, so the measured memory is that of the engine alone. `preparation.py` creates it.
"""

import pickle
from dataclasses import dataclass

from heedful.config import ModelConfig, TrainConfig
from heedful.data.examples import PlannedExamples


@dataclass(frozen=True)
class Work:
    """The training data and the model to train.

    Args:
        packed: examples as in the recipe; in ours, several pairs share a row.
        single: the same pairs, one per row, in equally large batches of pairs of similar length.
        random: the same pairs, in batches of 64 pairs of any length.
        vocab_size: size of the vocabulary of both sides.
        model: sizes and dropout; tied embeddings and post-norm, as in Vaswani et al. 2017.
        train: the recipe's precision, and label smoothing as in Vaswani et al. 2017.
    """

    packed: PlannedExamples
    single: PlannedExamples
    random: PlannedExamples
    vocab_size: int
    model: ModelConfig
    train: TrainConfig

    @property
    def longest(self):
        """The length of the longest source or target in all shapes, in tokens."""
        return max(length for shape in self.single.plan.shapes for length in shape.lengths)

    def save(self, path):
        """Write the work to a file for the engines' processes."""
        path.write_bytes(pickle.dumps(self))

    @classmethod
    def open(cls, path):
        """Read a file of `save`. Only read files that this program wrote: a pickle can run any code."""
        with open(path, "rb") as file:
            return pickle.load(file)  # noqa: S301
