"""An ensemble of models whose token distributions are averaged.

Axes: B batch, K hypotheses, T target length, V target vocabulary.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from heedful.backend import Tensor
from heedful.models.base import DecodeStep


class EnsembleMemory(NamedTuple):
    """The encoded sources of every model."""

    visible: Any  # (B, 1, 1, S), the same for all
    parts: Any  # a memory for each model


class Ensemble:
    """Several models that predict the mean of their distributions, with the interface that decoding uses.

    Args:
        models: models that share a vocabulary; their sizes and kinds may differ.
    """

    def __init__(self, models: Iterable[Any]):
        self.models = list(models)
        self.max_length = min(model.max_length for model in self.models)

    @property
    def variables(self) -> list[keras.Variable]:
        """The variables of all models."""
        return [variable for model in self.models for variable in model.variables]

    def __call__(self, inputs: Any) -> Tensor:
        """Return log-probabilities (B, T, V) of the token after each target position."""
        return _mean_distribution([model(inputs) for model in self.models])

    def prefill(self, source: Tensor) -> EnsembleMemory:
        """Encode source ids (B, S) with every model."""
        parts = [model.prefill(source) for model in self.models]
        return EnsembleMemory(parts[0].visible, parts)

    def empty_cache(self, batch_size: int, places: int) -> list[Any]:
        """Return empty caches for every model."""
        return [model.empty_cache(batch_size, places) for model in self.models]

    def decode_step(
        self, ids: Tensor, memory: Any, past: Any, *, attention: bool = False, **arguments: Any
    ) -> DecodeStep:
        """Run one decode step for ids (B, K), as a model does; return a `DecodeStep` of log-probabilities.

        The attention to the source is the mean over the models.
        """
        steps = [
            model.decode_step(ids, one_memory, one_past, attention=attention, **arguments)
            for model, one_memory, one_past in zip(self.models, memory.parts, past, strict=True)
        ]
        read = ops.mean(ops.stack([step.attention for step in steps]), axis=0) if attention else None
        return DecodeStep(_mean_distribution([step.logits for step in steps]), [step.past for step in steps], read)


def _mean_distribution(logits: Sequence[Tensor]) -> Tensor:
    """Return the log of the mean of the softmax distributions of several `logits`, each (..., V)."""
    each = [x - ops.logsumexp(x, axis=-1, keepdims=True) for x in (ops.cast(x, "float32") for x in logits)]
    return ops.logsumexp(ops.stack(each), axis=0) - ops.log(float(len(each)))
