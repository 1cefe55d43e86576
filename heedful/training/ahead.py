"""Prepare batches in a thread, while the device computes."""

import contextlib
import queue
import threading
from collections.abc import Generator, Iterator
from typing import Any

AHEAD = 2  # batches that are ready
_WAIT = 0.1  # seconds between looks at whether the batches are still wanted


def prepared_ahead(batches: Iterator[Any]) -> Generator[Any]:
    """Yield what an iterator yields, in its order; a thread takes the next ones from it meanwhile.

    The thread ends when the result is closed. An error of the iterator is raised where its item would have come.
    """
    ready: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(AHEAD)
    closed = threading.Event()

    def put(item, error=None):
        while not closed.is_set():
            with contextlib.suppress(queue.Full):
                ready.put((item, error), timeout=_WAIT)
                return

    def prepare():
        try:
            for item in batches:
                put(item)
                if closed.is_set():
                    return
            put(None, StopIteration())
        except BaseException as error:  # noqa: BLE001 - raised in the other thread
            put(None, error)

    thread = threading.Thread(target=prepare, daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item
    finally:
        closed.set()
        thread.join()
