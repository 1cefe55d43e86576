"""Handling of Ctrl-C, SIGTERM and SIGHUP: training stops at a point where its state can be saved."""

import contextlib
import signal
from typing import Self

from heedful.core.stop_signals import ending_signals


class Interrupted(Exception):
    """Training was stopped by a signal."""

    def __init__(self, signal_number: int, message: str):
        super().__init__(message)
        self.signal_number = signal_number


class Signals:
    """A context that records the first Ctrl-C, SIGTERM or SIGHUP in `received`; a second raises `KeyboardInterrupt`."""

    def __enter__(self) -> Self:
        self.received = None
        self.received_elsewhere: int | None = None  # a signal that another of several processes received
        self._before = {}
        for number in (signal.SIGINT, *ending_signals()):
            # Handlers can be set in the main thread only; in other threads the existing ones stay.
            with contextlib.suppress(ValueError):
                self._before[number] = signal.signal(number, self._note)
        return self

    @property
    def asked(self) -> int | None:
        """The signal that asks to stop, received here or in another process; None: there is none."""
        return self.received or self.received_elsewhere

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number, frame):
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = number
