"""A model in training that gives the checks its losses and gradients."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from heedful import backend
from heedful.config import TrainConfig
from heedful.training.objective import training_objective, with_update_tokens
from heedful.training.optimizer import first_moments


class TrialTraining:
    """A model in training.

    Args:
        model: fresh.
        train: a `TrainConfig`.
        batch: with its weights set to 0, it fills up updates.
        rate: learning rate.
    """

    def __init__(self, model: Any, train: TrainConfig, batch: Any, rate: float):
        self.model, self.batch, self.micro_batches = model, batch, train.accumulate_batches
        plain: dict[str, Any] = {"clip_norm": 0.0, "weight_decay": 0.0, "beta_2": 0.98}
        quick: dict[str, Any] = {"schedule": "inverse_square_root", "learning_rate": rate, "warmup_updates": 10}
        self.objective = training_objective(model, dataclasses.replace(train, **plain, **quick))
        self.optimizer = self.objective.optimizer
        # weights, dropout seeds, the optimizer
        self.beginning = [(v, backend.to_numpy(v)) for v in (*model.variables, *self.optimizer.variables)]

    def fit(self, batches: Sequence[Any], tokens: float | None = None) -> float:
        """Train on batches for whole updates, of `tokens` each; return the mean of the minimised loss."""
        if tokens is None:
            tokens = sum(batch["weights"].sum() for batch in batches[: self.micro_batches])
        batches = with_update_tokens(batches, tokens)
        backend.distribute([*self.objective.variables, *self.optimizer.variables])  # or updates compile twice
        data = backend.feed(iter(batches), batches[0])
        history = self.objective.fit(data, steps_per_epoch=len(batches), epochs=1, verbose=0, shuffle=False)
        return float(history.history["smoothed_loss"][-1])

    def gradient(self, batches: Sequence[Any], tokens: float) -> list[np.ndarray]:
        """Return the gradient of the first update for each trainable weight, from the first moments."""
        self.reset()
        nothing = self.batch | {"weights": np.zeros_like(self.batch["weights"])}
        self.fit([*batches, *[nothing] * (self.micro_batches - len(batches))], tokens)
        return [backend.to_numpy(moment.variable) / moment.factor for moment in first_moments(self.optimizer)]

    def reset(self, seeds: bool = True) -> None:
        """Restore the initial state, or all of it except the dropout seeds."""
        for variable, value in self.beginning:
            if seeds or "seed" not in variable.path:
                variable.assign(value)
