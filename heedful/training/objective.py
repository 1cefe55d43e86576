"""A model together with its training loss, as the Keras model that `fit` trains.

Axes: B batch, T target length, D d_model, V vocabulary.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from heedful import backend
from heedful.backend import Tensor
from heedful.config import TrainConfig
from heedful.layers.attention import MultiHeadAttention
from heedful.training.consistency import Consistency, consistency_of
from heedful.training.freezing import rate_factors
from heedful.training.loss import label_set_crossentropy, projected_crossentropy
from heedful.training.metrics import Perplexity, TokenAccuracy, TokenMean
from heedful.training.optimizer import training_optimizer
from heedful.training.schedule import Schedule, training_schedule

REPLICATED = ("update_tokens",)  # arrays of a batch without rows


def batch_sums(
    model: keras.Model,
    batch: Any,
    label_smoothing: float = 0.0,
    training: bool | None = False,
    consistency: Consistency | None = None,
) -> Any:
    """Return the four sums (4,) of `projected_crossentropy` for a model's predictions on a labelled batch.

    With `consistency` every text is read twice, and the first sum has what that adds. If texts have several labels,
    the sums are those of `label_set_crossentropy`.
    """
    batch = batch if consistency is None else consistency.doubled(batch, REPLICATED)
    features, output = model.features(batch, training=training), model.output_projection
    if getattr(model, "several_labels", False):
        logits = output.project(features)[:, 0]
        return label_set_crossentropy(logits, batch["labels"], batch["weights"][:, 0], label_smoothing, consistency)
    return projected_crossentropy(
        features, output.output_table, batch["labels"], batch["weights"], label_smoothing, bias=output.bias,
        consistency=consistency,
    )  # fmt: skip


@keras.saving.register_keras_serializable("heedful")
class Objective(keras.Model):
    """The training loss of a model: cross-entropy, computed from its features and summed.

    Its input is a whole batch: what the model reads, `labels` and `weights` (B, T), and for training
    `update_tokens` (1,), the number of tokens in the batch's whole update. Dividing by that instead of the batch's
    own tokens weights accumulated batches by their tokens.

    Args:
        model: has `features(inputs, training)` -> (B, T, D) and `output_projection`.
        label_smoothing: from 0 up to 1.
        micro_batches: batches per update; Keras takes the mean of their gradients.
        consistency: what two passes over each text add to the loss in training; None: one pass.
    """

    schedule: Schedule  # of the learning rate; set by `training_objective`

    def __init__(
        self,
        model: keras.Model,
        label_smoothing: float = 0.0,
        micro_batches: int = 1,
        consistency: Consistency | None = None,
    ):
        # float32, since Keras would otherwise round weights and token counts to the model's compute type
        super().__init__(name="objective", dtype="float32")
        self.model = model
        self.label_smoothing, self.micro_batches = label_smoothing, micro_batches
        self.consistency = consistency
        if consistency is not None:
            consistency.attach(model)
        # Validation also measures `loss`; training minimises `smoothed_loss`.
        self.loss_mean, self.smoothed_loss = TokenMean(name="loss"), TokenMean(name="smoothed_loss")
        self.accuracy, self.perplexity = TokenAccuracy(), Perplexity()
        self.built = True

    def build(self, input_shape: Any = None) -> None:
        """Nothing to do: the model is built already."""

    def call(self, batch: Any, training: bool | None = None) -> Any:
        """Return the four sums of `projected_crossentropy` (4,), and that of wishes if the batch has any (5,)."""

        def sums(batch):
            consistency = self.consistency if training else None
            results = batch_sums(self.model, batch, self.label_smoothing, training, consistency)
            wishes = batch.get(backend.STOP_WISHES)
            return results if wishes is None else ops.append(results, ops.sum(wishes))

        return backend.sum_over_devices(sums, self.model, batch, replicated=REPLICATED)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Tensor:
        """Return the loss whose gradient is used for the update, and update the metrics."""
        smoothed, nll, right, tokens = (y_pred[i] for i in range(4))
        self.loss_mean.add(nll, tokens)
        self.smoothed_loss.add(smoothed, tokens)
        self.perplexity.add(nll, tokens)
        self.accuracy.add(right, tokens)
        return self.micro_batches * smoothed / ops.cast(x["update_tokens"][0], "float32")

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> dict[str, Any]:
        results = self.get_metrics_result()
        if backend.STOP_WISHES not in x:
            return results
        return results | {backend.STOP_WISHES: y_pred[4]}

    def train_step(self, *arguments: Any) -> Any:
        """Compute one batch; see `keras.Model.train_step`. On JAX the new state stays where the old one was."""
        return backend.keep_distribution(super().train_step(*arguments))

    def reset_metrics(self) -> None:
        """Set the metrics to zero, on every device that trains."""
        super().reset_metrics()
        backend.distribute(variable for metric in self.metrics for variable in metric.variables)

    def get_metrics_result(self) -> dict[str, Any]:
        """Return means over all tokens since the last reset."""
        return {metric.name: metric.result() for metric in self.metrics}

    @property
    def metrics(self) -> list[Any]:
        return [self.loss_mean, self.smoothed_loss, self.accuracy, self.perplexity]

    def get_config(self) -> dict[str, Any]:
        model = keras.saving.serialize_keras_object(self.model)
        consistency = self.consistency and dataclasses.asdict(self.consistency)
        return {
            "model": model, "label_smoothing": self.label_smoothing, "micro_batches": self.micro_batches,
            "consistency": consistency,
        }  # fmt: skip

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        consistency = config.get("consistency")  # missing before heedful 0.2.0
        return cls(**config | {
            "model": keras.saving.deserialize_keras_object(config["model"]),
            "consistency": consistency and Consistency(**consistency),
        })  # fmt: skip


def training_objective(model: keras.Model, train: TrainConfig) -> Objective:
    """Return the compiled objective that trains a model as a config says, with its optimizer built."""
    schedule = training_schedule(train, model.d_model)
    objective = Objective(model, train.label_smoothing, train.accumulate_batches, consistency_of(train))
    factors = rate_factors(model, train) if train.rate_factors else None
    widths = _fused_widths(model) if train.optimizer == "muon" else None
    objective.compile(training_optimizer(train, schedule, factors, widths))
    objective.optimizer.build(objective.trainable_variables)
    if train.is_paced:
        schedule.follow(objective.optimizer)
    objective.schedule = schedule
    return objective


def _fused_widths(model):
    """Return the widths of the projections that one kernel holds, by its path, for all attention layers of a model."""
    attention = (layer for layer in model._flatten_layers() if isinstance(layer, MultiHeadAttention))
    return {path: widths for layer in attention for path, widths in layer.fused_widths.items()}


def with_update_tokens(batches: Sequence[dict], tokens: float | None = None) -> list[dict]:
    """Return one update's batches with its number of tokens, by default their own total."""
    tokens = sum(batch["weights"].sum() for batch in batches) if tokens is None else tokens
    counted = np.array([max(1, tokens)], np.float32)
    return [batch | {"update_tokens": counted} for batch in batches]
