"""Learning rates as functions of the update."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from heedful.backend import Tensor
from heedful.config import TrainConfig
from heedful.config.train import SCHEDULES, SCHEDULES_WITH_END
from heedful.training.pace import Pace

NO_PACE = {"start": 0.0, "position": 0.0, "speed": 1.0}  # that of the schedule as planned


@keras.saving.register_keras_serializable("heedful")
class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """The learning rate at each update, after a linear warm-up from zero.

    - `paper`: d_model^-0.5 min(u^-0.5, u warmup^-1.5) (Vaswani et al. 2017, section 5.3), times `peak` (1 there).
    - `inverse_square_root`: rises to `peak`, then falls with the square root of the update.
    - `cosine`: rises to `peak`, then falls along half a cosine to `final` at `updates`.
    - `linear`: rises to `peak`, then falls along a line to `final` at `updates`.
    - `wsd`: rises to `peak`, stays, and falls along a line to `final` in the last `decay_share` of the `updates`.
    - `constant`: rises to `peak` and stays.

    Args:
        kind: one of the names above.
        peak: highest learning rate; for `paper` a factor.
        warmup_updates: length of the warm-up.
        d_model: for `paper`.
        updates: the end, for `cosine`, `linear` and `wsd`.
        final: learning rate at the end.
        micro_batches: calls per update; Keras counts calls when it accumulates gradients.
        decay_share: for `wsd`.
    """

    def __init__(
        self,
        kind: str,
        peak: float = 1.0,
        warmup_updates: int = 4000,
        d_model: int = 512,
        updates: int | None = None,
        final: float = 0.0,
        micro_batches: int = 1,
        decay_share: float = 0.2,
    ):
        if kind not in SCHEDULES:
            raise ValueError(f"Unknown schedule {kind!r}: choose one of {', '.join(SCHEDULES)}.")
        if kind in SCHEDULES_WITH_END and not updates:
            raise ValueError(f"The schedule {kind!r} needs the number of updates at which it ends.")
        self.kind, self.peak, self.warmup_updates, self.d_model = kind, peak, warmup_updates, d_model
        self.updates, self.final, self.micro_batches, self.decay_share = updates, final, micro_batches, decay_share
        self.variables: dict[str, keras.Variable] = {}
        """Those that hold the pace and the lengths, after `follow`."""

    def __call__(self, step: Tensor) -> Tensor:
        """Return the learning rate of the update after `step` earlier ones."""
        return self.rate_at(self.position(step))

    def rate_at(self, update: Any) -> Any:
        """Return the learning rate at an update: its number, from 1, as a float32 tensor."""
        if self.kind in SCHEDULES_WITH_END:
            return self._ending_rate_at(update)
        warmup = max(self.warmup_updates, 1)
        rising = ops.minimum(update / warmup, 1.0)
        if self.kind == "paper":
            return self.peak * self.d_model**-0.5 * ops.minimum(update**-0.5, update * warmup**-1.5)
        if self.kind == "inverse_square_root":
            return self.peak * rising * ops.sqrt(warmup / ops.maximum(update, warmup))
        return self.peak * rising

    def _ending_rate_at(self, update):
        warmup, start = self._length("warmup"), self._length("fall_start")
        rising = ops.minimum(self._fraction(update, "warmup"), 1.0)
        done = ops.clip(self._fraction(update - start, "fall"), 0.0, 1.0)
        share = 0.5 * (1.0 + ops.cos(math.pi * done)) if self.kind == "cosine" else 1.0 - done
        falling = self.final + (self.peak - self.final) * share
        return ops.where(update < warmup, self.peak * rising, falling)

    def _lengths(self):
        """Return the end of the warm-up, the beginning of the fall, and its length, in updates."""
        warmup, updates = max(self.warmup_updates, 1), self.updates or 1
        start = max(warmup, (1 - self.decay_share) * updates) if self.kind == "wsd" else warmup
        return {"warmup": warmup, "fall_start": start, "fall": max(updates - start, 1)}

    def _length(self, name):
        """Return one of these lengths: a constant, or once the schedule follows an optimizer a tensor."""
        return ops.convert_to_tensor(self.variables[name]) if self.variables else self._lengths()[name]

    def _fraction(self, updates, name):
        """Return a number of updates as a fraction of a length."""
        if self.variables:  # which XLA rounds as a division by a constant
            return updates * ops.convert_to_tensor(self.variables[f"inverse_{name}"])
        return updates / self._lengths()[name]

    def follow(self, optimizer: keras.optimizers.Optimizer) -> None:
        """Keep a `Pace` and the lengths of this schedule, which has an end, in new variables of a built optimizer.

        They can then change without compiling anew, and trainings of other lengths share compiled programs.
        """
        lengths = self._lengths()
        inverses = {f"inverse_{name}": np.float32(1) / np.float32(lengths[name]) for name in ("warmup", "fall")}
        for name, value in {**NO_PACE, **lengths, **inverses}.items():
            variable = optimizer.add_variable((), initializer="zeros", name=f"schedule_{name}")
            variable.assign(float(value))
            self.variables[name] = variable

    def set_pace(self, pace: Pace) -> None:
        """Change the pace, after `follow`."""
        for name in NO_PACE:
            self.variables[name].assign(float(getattr(pace, name)))

    def position(self, step: Any) -> Any:
        """Return the position in the schedule of the update after `step` calls, as a float.

        The first update is number 1: at 0 the paper's rate would be 0, which wastes an update.
        """
        update = ops.cast(step // self.micro_batches, "float32") + 1.0
        if not self.variables:
            return update
        start, position, speed = (ops.convert_to_tensor(self.variables[name]) for name in NO_PACE)
        return position + (update - start) * speed

    def get_config(self) -> dict[str, Any]:
        names = ("kind", "peak", "warmup_updates", "d_model", "updates", "final", "micro_batches", "decay_share")
        return {name: getattr(self, name) for name in names}


def training_schedule(train: TrainConfig, d_model: int) -> Schedule:
    """Return the learning rate schedule of a `TrainConfig` for a model of width `d_model`."""
    return Schedule(
        train.schedule, train.rate(d_model), train.warmup_updates, d_model, train.updates,
        final=train.final_learning_rate, micro_batches=train.accumulate_batches, decay_share=train.decay_share,
    )  # fmt: skip
