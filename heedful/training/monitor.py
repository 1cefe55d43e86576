"""A callback that times batches and ends a `fit` early."""

import math
import time

import keras

from heedful import backend


class Monitor(keras.callbacks.Callback):
    """Times each batch of a `fit`, and stops it after an update on a signal, a passed deadline or divergence."""

    def __init__(self, trainer, meter, signals, deadline):
        super().__init__()
        self.trainer, self.meter, self.signals, self.deadline = trainer, meter, signals, deadline
        self.number = trainer.update * trainer.config.accumulate_batches
        self.diverged = None
        self.since = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        loss = backend.finish(logs["loss"], self.since)  # so that the time includes the computation
        now = time.monotonic()
        self.meter.count(self.number, now - self.since)
        self.since = now
        self.number += 1
        update, rest = divmod(self.number, self.trainer.config.accumulate_batches)
        if rest:
            return
        if not math.isfinite(loss):
            self.diverged = update
        if self.diverged or self.signals.received is not None or now > self.deadline:
            self.model.stop_training = True
