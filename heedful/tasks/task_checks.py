"""What the self-check of a training asks a task for."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from heedful.config import DecodeConfig

if TYPE_CHECKING:
    import keras

    from heedful.runs.run import Run


class Probe:
    """A search over the examples of a batch, and the inputs to score its results in one forward pass.

    Args:
        search: maps sources (and `limits`) to candidates, like a `BatchSearch`; it never writes its `forbidden` ids.
        sources: lists of ids.
        limits: maximum number of tokens to write for each source.
    """

    def __init__(self, search: Callable[..., Any], sources: Sequence[list[int]], limits: Sequence[int]):
        self.search, self.sources, self.limits = search, sources, limits

    def first_scored(self, row: int) -> int:
        """Return the position whose logits belong to the first token written for a source."""
        raise NotImplementedError

    def write_row(self, inputs: dict[str, np.ndarray], row: int, written: Sequence[int]) -> None:
        """Put a source and the tokens written for it into a row of inputs (arrays of zeros, by name)."""
        raise NotImplementedError


class TaskChecks:
    """Random batches of a task, and what to look at in its model."""

    def random_batch(self, run: "Run", random: np.random.Generator, rows: int, length: int) -> dict[str, np.ndarray]:
        """Return a batch of random tokens, without weights, in the form of the task's examples."""
        raise NotImplementedError

    def embeddings(self, model: "keras.Model") -> "list[keras.layers.Layer]":
        """Return the embedding layers for a model's input ids."""
        return [model.embedding]

    def wrong_labels(self, run: "Run", batch: Mapping[str, np.ndarray]) -> float:
        """Return the share of a batch's labels that are not what the model should predict."""
        raise NotImplementedError

    def probe(self, run: "Run", model: "keras.Model", decode: DecodeConfig, batch: Mapping[str, np.ndarray]) -> Probe:
        """Return a `Probe` of the search, for a task that `writes`."""
        raise NotImplementedError
