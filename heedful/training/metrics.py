"""Metrics over tokens that are right for any batching: a sum and a weight, divided once.

Axes: B batch, T length, V vocabulary.
"""

import keras
from keras import ops

from heedful.training.loss import token_losses


class TokenMean(keras.metrics.Metric):
    """The mean of a quantity over all tokens seen: summed and weighed, divided when asked."""

    def __init__(self, name="token_mean", **kwargs):
        super().__init__(name=name, **kwargs)
        self.total = self.add_variable((), "zeros", name="total")
        self.weight = self.add_variable((), "zeros", name="weight")

    def add(self, total, weight):
        """Count a `total` that was summed over `weight` tokens."""
        self.total.assign_add(ops.cast(total, self.dtype))
        self.weight.assign_add(ops.cast(weight, self.dtype))

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Count targets (B, T) against logits (B, T, V), by `sample_weight` (B, T) or the mask of the logits."""
        values = self.values(ops.cast(y_true, "int32"), ops.cast(y_pred, "float32"))
        if sample_weight is None:
            sample_weight = ops.ones_like(values)
        weight = ops.broadcast_to(ops.cast(sample_weight, values.dtype), ops.shape(values))
        self.add(ops.sum(values * weight), ops.sum(weight))

    def values(self, targets, logits):
        """Return the quantity for each token (B, T)."""
        raise NotImplementedError(f"{type(self).__name__} must say what it measures.")

    def result(self):
        """Return sum / weight, 0 before the first token."""
        return ops.divide_no_nan(self.total, self.weight)


@keras.saving.register_keras_serializable("heedful")
class TokenAccuracy(TokenMean):
    """Share of tokens whose most likely prediction is right. Use it in `weighted_metrics=`."""

    def __init__(self, name="accuracy", **kwargs):
        super().__init__(name=name, **kwargs)

    def values(self, targets, logits):
        return ops.cast(ops.equal(ops.cast(ops.argmax(logits, axis=-1), "int32"), targets), self.dtype)


@keras.saving.register_keras_serializable("heedful")
class Perplexity(TokenMean):
    """exp(mean negative log-likelihood of a token), without label smoothing. Use it in `weighted_metrics=`."""

    def __init__(self, name="perplexity", **kwargs):
        super().__init__(name=name, **kwargs)

    def values(self, targets, logits):
        return token_losses(logits, targets)[0]

    def result(self):
        return ops.exp(ops.minimum(super().result(), 88.0))  # more float32 cannot hold
