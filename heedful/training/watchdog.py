"""Notice that processes which train together no longer make progress."""

import os
import threading
import time
from typing import Any

import keras

from heedful import backend
from heedful.core.errors import LOST_PROCESS
from heedful.core.progress import note


class Watchdog(keras.callbacks.Callback):
    """A context in which some batch has to end every few minutes; otherwise it ends the process.

    A process that is stopped or stuck sends no gradients, and the others wait for it in a collective that Python cannot
    interrupt: the process can only end.

    Args:
        seconds: the longest time between the ends of two batches, compilation included; 0: any.
        who: what is stuck, for the message.
        resume: the command that continues the training.
    """

    def __init__(self, seconds: float, who: str, resume: str):
        super().__init__()
        self.seconds, self.who, self.resume = seconds, who, resume
        self._last, self._ended = time.monotonic(), threading.Event()

    def __enter__(self) -> "Watchdog":
        if self.seconds:
            self._last = time.monotonic()
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._last = time.monotonic()

    def _watch(self):
        while not self._ended.wait(min(1.0, self.seconds / 10)):
            if time.monotonic() - self._last > self.seconds:
                note(
                    f"heedful: process {backend.process_index()} has waited {self.seconds:.0f} s for the others of "
                    f"{self.who}: one is stuck or gone. Continue with: {self.resume}"
                )
                os._exit(LOST_PROCESS)
