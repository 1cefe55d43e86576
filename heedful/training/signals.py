"""Ctrl-C and SIGTERM while training: noted, so that the work stops where its state can be saved."""

import contextlib
import signal


class Interrupted(Exception):
    """Training was asked to stop by a signal, and has saved its state."""

    def __init__(self, signal_number, message):
        super().__init__(message)
        self.signal_number = signal_number


class Signals:
    """While this is open, the first Ctrl-C or SIGTERM is noted in `received`; a second one stops at once."""

    def __enter__(self):
        self.received = None
        self._before = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            # Signals can be handled in the main thread only; elsewhere they stay with whoever runs that.
            with contextlib.suppress(ValueError):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_):
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number, frame):
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = number
