"""Several models that vote on each token.

Axes: B batch, K hypotheses, T target length, V target vocabulary.
"""

from typing import Any, NamedTuple

from keras import ops

from heedful.layers import Trace


class EnsembleMemory(NamedTuple):
    """What each model leaves of the sources."""

    visible: Any  # (B, 1, 1, S), the same for all
    parts: Any  # one memory a model


class Ensemble:
    """The mean of several models' distributions, in the interface that generation knows: `begin`, `room`, `step`.

    Args:
        models: with one vocabulary; sizes and kinds may differ.
    """

    def __init__(self, models):
        self.models = list(models)
        self.max_length = min(model.max_length for model in self.models)

    @property
    def variables(self):
        """The variables of all models."""
        return [variable for model in self.models for variable in model.variables]

    def __call__(self, inputs):
        """Return log-probabilities (B, T, V) of the token after each target position; inputs as of the models."""
        return _mean_distribution([model(inputs) for model in self.models])

    def begin(self, source):
        """Let every model read source ids (B, S)."""
        parts = [model.begin(source) for model in self.models]
        return EnsembleMemory(parts[0].visible, parts)

    def room(self, batch_size, places):
        """Return empty caches for every model."""
        return [model.room(batch_size, places) for model in self.models]

    def step(self, ids, memory, past, *, trace=None, **arguments):
        """Read ids (B, K); return log-probabilities (B, K, V) and the new caches. Arguments as of the models.

        A `trace` gets the mean of what the models read of the source.
        """
        traces = [None if trace is None else Trace() for _ in self.models]
        steps = [
            model.step(ids, one_memory, one_past, trace=one_trace, **arguments)
            for model, one_memory, one_past, one_trace in zip(self.models, memory.parts, past, traces, strict=True)
        ]
        if trace is not None:
            read = ops.mean(ops.stack([one_trace.to_source() for one_trace in traces]), axis=0)
            trace.weights["ensemble/cross_attention"] = read[:, None]
        return _mean_distribution([logits for logits, _ in steps]), [past for _, past in steps]


def _mean_distribution(logits):
    """Return the logarithm of the mean of the distributions that `logits`, each (..., V), stand for."""
    each = [x - ops.logsumexp(x, axis=-1, keepdims=True) for x in (ops.cast(x, "float32") for x in logits)]
    return ops.logsumexp(ops.stack(each), axis=0) - ops.log(float(len(each)))
