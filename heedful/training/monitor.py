"""A callback that times batches, saves the state between validations, and ends a `fit` early."""

import math
import signal
import time
from typing import Any

import keras

from heedful import backend
from heedful.training.meter import Meter
from heedful.training.signals import Signals


class Monitor(keras.callbacks.Callback):
    """Times each batch of a `fit`, logs, and stops it after an update on a signal, a passed deadline or divergence.

    Every `train.save_minutes` it saves the state, so that a killed training can be resumed from there; but not after
    the update `goal`, since a training that is resumed from it would skip the validation that follows.
    """

    def __init__(self, trainer: Any, goal: int, meter: Meter, signals: Signals, deadline: float, log: Any = None):
        super().__init__()
        self.trainer, self.goal, self.meter, self.signals = trainer, goal, meter, signals
        self.deadline, self.log = deadline, log
        self.number = trainer.update * trainer.config.accumulate_batches
        self.diverged = None
        self.since = self.saved = time.monotonic()
        self.waiting: list[int] = []  # batches that the device may still be computing
        self.latest: dict = {}  # the metrics of the last one

    def wishes_to_stop(self) -> bool:
        """Return whether a signal has come or the deadline has passed."""
        return self.signals.asked is not None or time.monotonic() > self.deadline

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self.waiting and self.meter.is_new(self.number):  # its compilation is not their time
            self._wait()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.waiting.append(self.number)
        self.latest = logs or {}
        self.number += 1
        update, rest = divmod(self.number, self.trainer.config.accumulate_batches)
        goes_on = self.trainer.updates.continues(self.number)
        if goes_on and not self.meter.is_new(self.number - 1):
            return
        loss = self._wait()
        if rest or goes_on:
            return
        if not math.isfinite(loss):
            self.diverged = update
        if self.log:
            self.trainer.checkpoints.write(lambda: self.log.after_update(update, loss))
        wish = self.wishes_to_stop()
        if self.trainer.updates.ends(self.latest, wish):
            self.model.stop_training = True
            if not wish and not self.diverged:
                self.signals.elsewhere = signal.SIGTERM
        elif self.log and update != self.goal and self._save_is_due():
            if hasattr(self.model, "jax_state_sync"):  # on JAX the state of a running `fit` is not in the variables
                self.model.jax_state_sync()
            self.trainer.save_between(update)
            self.saved = time.monotonic()

    def _save_is_due(self):
        minutes = self.trainer.config.save_minutes
        if self.trainer.updates.saves_after_runs_only:
            return False
        return bool(minutes) and self.since - self.saved >= 60 * minutes

    def _wait(self):
        """Wait for the batches that were dispatched, and count them; return the mean loss so far."""
        loss = backend.finish(self.latest["loss"], self.since)  # so that the time includes the computation
        now = time.monotonic()
        for number in self.waiting:
            self.meter.count(number, (now - self.since) / len(self.waiting))
            if self.log:
                self.log.count(self.trainer.examples.tokens(number))
        self.since, self.waiting = now, []
        return loss
