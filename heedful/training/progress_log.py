"""The log of a running training: a line every few seconds, between validations."""

import math
import time
from collections.abc import Callable

import keras
import numpy as np

from heedful import backend
from heedful.runs.training_log import PROGRESS, TrainingLog
from heedful.training.optimizer import first_moments

INTERVAL = 2.0  # seconds between lines
MAX_SHARE = 0.005  # share of the time that measuring the gradient may take


class ProgressLog:
    """Writes progress.jsonl: loss, tokens per second, learning rate and gradient norm.

    The norm is computed from the optimizer's first moments before and after an update (`first_moments`), so the
    compiled update is the same with and without this log. It is the norm of the gradient that the optimizer used: after
    clipping, and the mean over accumulated batches.

    Args:
        log: the `TrainingLog` of the run.
        objective: the `Objective` in training.
        learning_rate: returns the learning rate of an update.
        started: time (`time.monotonic`) at which the training began, minus that of earlier sessions.
    """

    def __init__(self, log: TrainingLog, objective: keras.Model, learning_rate: Callable[[int], float], started: float):
        self.log, self.objective, self.learning_rate, self.started = log, objective, learning_rate, started
        self._moments = first_moments(objective.optimizer)
        self._interval, self._reading = INTERVAL, 0.0  # seconds: between lines, and to read all moments
        self.begin()

    def begin(self) -> None:
        """Start counting, at the beginning of a `fit`, whose loss is a mean since then."""
        self._tokens, self._counted, self._summed = 0, 0, 0.0
        self._since, self._before = time.monotonic(), None

    def count(self, tokens: int) -> None:
        """Count the tokens of a batch."""
        self._tokens += tokens

    def after_update(self, update: int, loss: float) -> None:
        """Write a line if one is due. `loss` is the mean of all tokens since `begin`."""
        now = time.monotonic()
        if not math.isfinite(loss) or now - self._since < self._interval:
            return
        if self._before is None:  # the line follows after the next update, which the norm is of
            self._before = self._read_moments()
            return
        norm, self._before = self._gradient_norm(self._before), None
        measured = {} if norm is None else {"gradient_norm": float(f"{norm:.4g}")}
        summed = loss * self._tokens
        tokens = max(1, self._tokens - self._counted)
        self.log.append({
            "update": update, "loss": round((summed - self._summed) / tokens, 5),
            "tokens_per_second": round(tokens / (now - self._since), 1), "learning_rate": self.learning_rate(update),
            **measured, "seconds": round(now - self.started, 2),
        }, PROGRESS)  # fmt: skip
        self._interval = max(INTERVAL, 2 * self._reading / MAX_SHARE)  # the moments are read twice
        self._counted, self._summed, self._since = self._tokens, summed, now

    def _read_moments(self):
        """Return the moments; none if other processes have parts of them, see `train.shard`."""
        backend.write_state(self.objective)
        if not all(backend.is_whole_here(moment.variable) for moment in self._moments):
            return []
        for moment in self._moments[:1]:
            backend.to_numpy(moment.variable)  # waits for updates in flight, which is no time lost
        began = time.monotonic()
        moments = [np.array(backend.to_numpy(moment.variable), np.float32) for moment in self._moments]
        self._reading = time.monotonic() - began
        return moments

    def _gradient_norm(self, before):
        """Return the norm of the last update's gradient; None if there are no moments to compute it from."""
        if not before:
            return None
        squares = 0.0
        for moment, old, new in zip(self._moments, before, self._read_moments(), strict=True):
            gradient = new - moment.decay * old
            gradient /= moment.factor
            squares += float(np.vdot(gradient, gradient))
        return math.sqrt(squares)
