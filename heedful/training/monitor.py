"""A callback that times batches, saves the state between validations, and ends a `fit` early."""

import math
import signal
import time
from collections.abc import Callable
from typing import Any

import keras

from heedful import backend
from heedful.training.meter import Meter
from heedful.training.signals import Signals


class Monitor(keras.callbacks.Callback):
    """Times each batch of a `fit`, logs, and stops it after an update on a signal, after `train.minutes` or divergence.

    Every `train.save_minutes` it saves the state, so that a killed training can be resumed from there; but not after
    the update `last_update`, since a training that is resumed from it would skip the validation that follows.
    """

    def __init__(
        self, trainer: Any, last_update: int, meter: Meter, signals: Signals, seconds_left: Callable[[], float],
        log: Any = None,
    ):  # fmt: skip
        super().__init__()
        self.trainer, self.last_update, self.meter, self.signals = trainer, last_update, meter, signals
        self.seconds_left, self.log = seconds_left, log
        self.batch_number = trainer.update * trainer.config.accumulate_batches
        self.diverged = None
        self.last_wait = self.saved_at = time.monotonic()
        self.pending_batches: list[int] = []  # batches that the device may still be computing
        self.latest_logs: dict = {}  # the metrics of the last one

    def should_stop(self) -> bool:
        """Return whether a signal has come or the time is used up."""
        return self.signals.asked is not None or self.seconds_left() <= 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self.pending_batches and self.meter.is_new(self.batch_number):
            self._wait()  # so that the compilation of this batch is not counted as their time

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.pending_batches.append(self.batch_number)
        self.latest_logs = logs or {}
        self.batch_number += 1
        update, batches_into_update = divmod(self.batch_number, self.trainer.config.accumulate_batches)
        runs_ahead = self.trainer.updates.runs_ahead_after(self.batch_number)
        if runs_ahead and not self.meter.is_new(self.batch_number - 1):
            return
        loss = self._wait()
        if batches_into_update or runs_ahead:
            return
        if not math.isfinite(loss):
            self.diverged = update
        if self.log:
            with self.trainer.checkpoints.writing():
                self.log.after_update(update, loss)
        stop = self.should_stop()
        if self.trainer.updates.ends(self.latest_logs, stop):
            self.model.stop_training = True
            if not stop and not self.diverged:
                self.signals.received_elsewhere = signal.SIGTERM
        elif self.log and update != self.last_update and self._save_is_due():
            backend.write_state(self.model)
            self.trainer.save_between(update)
            self.saved_at = time.monotonic()

    def _save_is_due(self):
        minutes = self.trainer.config.save_minutes
        if self.trainer.updates.saves_after_runs_only:
            return False
        return bool(minutes) and self.last_wait - self.saved_at >= 60 * minutes

    def _wait(self):
        """Wait for the batches that were dispatched, and count them; return the mean loss so far."""
        loss = backend.finish(self.latest_logs["loss"], self.last_wait)  # so that the time includes the computation
        now = time.monotonic()
        for number in self.pending_batches:
            self.meter.count(number, (now - self.last_wait) / len(self.pending_batches))
            if self.log:
                self.log.count(self.trainer.examples.tokens(number))
        self.last_wait, self.pending_batches = now, []
        return loss
