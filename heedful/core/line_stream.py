"""Lines that arrive over time, and are processed without waiting for a full batch."""

import queue
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

MAX_WAITING = 10_000  # lines read ahead
NEXT_LINE = 0.05  # seconds to wait for another line of a batch
LONGEST_WAIT = 0.5  # seconds after which a batch is processed even if more lines arrive
POLL = 1.0  # seconds per wait for the next line
_END = object()


def line_batches(lines: Iterator[str], max_lines: int, whole: bool = False) -> Iterator[list[str]]:
    """Cut an iterator of lines into lists of up to `max_lines`.

    With an iterator that has a method `arrived(seconds)`, such as `LineStream`, a list also ends when no further line
    arrives soon, or when its first line has waited long enough, unless lists must be `whole`.
    """
    arrived = None if whole else getattr(lines, "arrived", None)
    batch: list[str] = []
    until = 0.0
    for line in lines:
        now = time.monotonic()
        until = until if batch else now + LONGEST_WAIT
        batch.append(line)
        if len(batch) == max_lines or (arrived and not arrived(min(NEXT_LINE, until - now))):
            yield batch
            batch = []
    if batch:
        yield batch


class LineStream:
    """An iterator over another, possibly blocking one, which a thread reads ahead.

    The thread starts when the first item is requested. It may still be blocked when the process ends, so its source
    should be a file object that nothing else uses.
    """

    def __init__(self, items: Iterable[str]):
        self._queue: queue.Queue = queue.Queue(MAX_WAITING)
        self._next: list[Any] = []  # at most one item, fetched by `arrived`
        self._thread = threading.Thread(target=self._read, args=(items,), daemon=True)

    def _read(self, items):
        try:
            for item in items:
                self._queue.put((item, None))
            self._queue.put((_END, None))
        except Exception as error:  # noqa: BLE001 - raised again by __next__
            self._queue.put((_END, error))

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while not self.arrived(POLL):
            pass  # Python handles a Ctrl-C between two waits, not within one that has just begun
        item, error = self._next.pop()
        if item is _END:
            self._next.append((_END, None))  # for every further call
            raise error or StopIteration
        return item

    def arrived(self, seconds: float) -> bool:
        """Return whether the next item, or the end, is available within `seconds`."""
        if self._thread.ident is None:
            self._thread.start()
        if not self._next:
            try:
                self._next.append(self._queue.get(timeout=max(0.0, seconds)))
            except queue.Empty:
                return False
        return True
