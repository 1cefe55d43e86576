"""The work that all engines are given: a recipe's text, tokenized, in batches, and the sizes of the model.

It needs no backend, so that what an engine takes of the memory is its own; `preparation.py` makes it.
"""

import pickle
from dataclasses import dataclass

from heedful.config import ModelConfig, TrainConfig
from heedful.data.examples import PlannedExamples


@dataclass(frozen=True)
class Work:
    """What is trained on, and what is trained.

    Args:
        packed: examples as the recipe has them; in ours pairs share rows.
        single: the same pairs in rows of their own, in batches as large of pairs of like length.
        random: the same again, in batches of 64 pairs of any length.
        vocab_size: of both sides.
        model: sizes and dropout; tables are tied, norms follow the residual connection, as in the paper.
        train: the recipe's precision, and label smoothing as in the paper.
    """

    packed: PlannedExamples
    single: PlannedExamples
    random: PlannedExamples
    vocab_size: int
    model: ModelConfig
    train: TrainConfig

    @property
    def longest(self):
        """The longest source or target of all shapes, in tokens."""
        return max(length for shape in self.single.plan.shapes for length in shape.lengths)

    def save(self, path):
        """Write it for the engines' processes."""
        path.write_bytes(pickle.dumps(self))

    @classmethod
    def open(cls, path):
        """Read what this program has just written, and nothing else: a pickle may run anything."""
        with open(path, "rb") as file:
            return pickle.load(file)  # noqa: S301
