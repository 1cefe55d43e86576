"""Token metrics that do not depend on the batching: a sum and a weight, divided once.

Axes: B batch, T length, V vocabulary.
"""

from typing import Any

import keras
from keras import ops

from heedful.backend import Tensor
from heedful.core.special_tokens import PAD_ID
from heedful.training.loss import known_labels, label_weights, token_losses


class TokenMean(keras.metrics.Metric):
    """The mean of a quantity over all tokens seen: sum and weight are accumulated, and divided in `result`.

    Args:
        ignored_label: the label of padding, which does not count; None: every label counts.
    """

    def __init__(self, name: str = "token_mean", ignored_label: int | None = PAD_ID, **kwargs: Any):
        super().__init__(name=name, **kwargs)
        self.ignored_label = ignored_label
        self.total = self.add_variable((), "zeros", name="total")
        self.weight = self.add_variable((), "zeros", name="weight")

    def add(self, total: Tensor, weight: Tensor) -> None:
        """Add a `total` that was summed over `weight` tokens."""
        self.total.assign_add(ops.cast(total, self.dtype))
        self.weight.assign_add(ops.cast(weight, self.dtype))

    def update_state(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None) -> None:
        """Count targets (B, T) against logits (B, T, V): weighted by `sample_weight` (B, T) and the logits' mask."""
        sample_weight = label_weights(y_true, sample_weight, self.ignored_label)
        for add_to, of_token in ((self.total, self.values), (self.weight, _ones)):
            add_to.assign_add(_MaskedSum(of_token)(y_true, y_pred, sample_weight))

    def values(self, targets: Tensor, logits: Tensor) -> Any:
        """Return the quantity for each token (B, T)."""
        raise NotImplementedError(f"{type(self).__name__} must say what it measures.")

    def result(self) -> Tensor:
        """Return sum / weight, 0 before the first token."""
        return ops.divide_no_nan(self.total, self.weight)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"ignored_label": self.ignored_label}


class _MaskedSum(keras.losses.Loss):
    """The sum of a function of each token, weighted and masked as Keras does for losses.

    Args:
        function: from targets (B, T) and float32 logits (B, T, V) to a number for each token (B, T).
    """

    def __init__(self, function):
        super().__init__("masked_sum", reduction="sum", dtype="float32")  # even if a model computes in bfloat16
        self.function = function

    def call(self, y_true, y_pred):
        return self.function(ops.cast(y_true, "int32"), y_pred)


def _ones(targets, logits):
    return ops.ones_like(targets, "float32")


@keras.saving.register_keras_serializable("heedful")
class TokenAccuracy(TokenMean):
    """Share of tokens whose most likely prediction is correct. For `metrics=` or `weighted_metrics=`."""

    def __init__(self, name: str = "accuracy", **kwargs: Any):
        super().__init__(name=name, **kwargs)

    def values(self, targets: Tensor, logits: Tensor) -> Any:
        return ops.cast(ops.equal(ops.cast(ops.argmax(logits, axis=-1), "int32"), targets), self.dtype)


@keras.saving.register_keras_serializable("heedful")
class Perplexity(TokenMean):
    """exp(mean negative log-likelihood of a token), without label smoothing. For `metrics=` or `weighted_metrics=`."""

    def __init__(self, name: str = "perplexity", **kwargs: Any):
        super().__init__(name=name, **kwargs)

    def values(self, targets: Tensor, logits: Tensor) -> Any:
        return token_losses(logits, known_labels(targets, self.ignored_label))[0]

    def result(self) -> Tensor:
        return ops.exp(ops.minimum(super().result(), 88.0))  # beyond this, exp overflows float32
