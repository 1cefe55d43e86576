"""Lines that come over time: what is there is worked on, not held back for more."""

import queue
import threading

MOST_WAITING = 10_000  # lines read ahead
SOON = 0.05  # seconds in which the next line of a program that has more to say is there
_END = object()


def windows(lines, most):
    """Cut an iterator of lines into lists of up to `most`.

    One that comes to know its lines over time, as `Arriving` does, may have a method `arrived()`: as long as that says
    that no further line is there, what has come is not held back.
    """
    arrived = getattr(lines, "arrived", lambda: True)
    window = []
    for line in lines:
        window.append(line)
        if len(window) == most or not arrived():
            yield window
            window = []
    if window:
        yield window


class Arriving:
    """An iterator over the items of another one that may have to wait for each; a thread reads ahead."""

    def __init__(self, items):
        self._queue = queue.Queue(MOST_WAITING)
        self._next = []  # at most one item that was looked at and not yet given
        threading.Thread(target=self._read, args=(items,), daemon=True).start()

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
        item, error = self._next.pop() if self._next else self._queue.get()
        if item is _END:
            self._next.append((_END, None))  # as often as anybody asks
            raise error or StopIteration
        return item

    def arrived(self):
        """Whether the next item, or the end, is there or comes soon."""
        if not self._next:
            try:
                self._next.append(self._queue.get(timeout=SOON))
            except queue.Empty:
                return False
        return True
