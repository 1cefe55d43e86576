"""Lines that arrive over time: they are processed as they come, without waiting for a full batch."""

import queue
import threading
import time

MOST_WAITING = 10_000  # lines read ahead
SOON = 0.05  # seconds within which the next line of a busy program arrives
AT_LAST = 0.5  # seconds after which the first of some lines is not held back any more, though others come
AWAKE = 1.0  # seconds that a wait for the next line lasts before it begins anew
_END = object()


def windows(lines, most, whole=False):
    """Cut an iterator of lines into lists of up to `most`.

    One that comes to know its lines over time, as `Arriving` does, may have a method `arrived(seconds)`: when no
    further line comes soon, or the first has waited long enough, what has come is not held back. Unless lists must be
    `whole`.
    """
    arrived = None if whole else getattr(lines, "arrived", None)
    window, until = [], 0.0
    for line in lines:
        now = time.monotonic()
        until = until if window else now + AT_LAST
        window.append(line)
        if len(window) == most or (arrived and not arrived(min(SOON, until - now))):
            yield window
            window = []
    if window:
        yield window


class Arriving:
    """An iterator over the items of another one that may have to wait for each; a thread reads ahead.

    The thread begins when an item is first asked for. It may be waiting when the process ends, so it should read from
    what nothing else needs then.
    """

    def __init__(self, items):
        self._queue = queue.Queue(MOST_WAITING)
        self._next = []  # at most one item that was looked at and not yet given
        self._thread = threading.Thread(target=self._read, args=(items,), daemon=True)

    def _read(self, items):
        try:
            for item in items:
                self._queue.put((item, None))
            self._queue.put((_END, None))
        except Exception as error:  # noqa: BLE001 - raised again where the items are wanted
            self._queue.put((_END, error))

    def __iter__(self):
        return self

    def __next__(self):
        while not self.arrived(AWAKE):
            pass  # A Ctrl-C that comes just before a wait does not end it: Python notices it between two.
        item, error = self._next.pop()
        if item is _END:
            self._next.append((_END, None))  # as often as anybody asks
            raise error or StopIteration
        return item

    def arrived(self, seconds):
        """Whether the next item, or the end, has arrived or arrives within so many seconds."""
        if self._thread.ident is None:
            self._thread.start()
        if not self._next:
            try:
                self._next.append(self._queue.get(timeout=max(0.0, seconds)))
            except queue.Empty:
                return False
        return True
