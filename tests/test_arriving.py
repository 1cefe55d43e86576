"""Lines that come over time: nobody waits for what does not come, and nothing is lost."""

import _thread
import queue
import threading
import time

import pytest

from heedful import arriving
from heedful.arriving import Arriving, windows
from heedful.errors import InputError

pytestmark = pytest.mark.any_backend


def test_what_is_there_is_taken_together():
    more = queue.Queue()
    lines = Arriving(iter(more.get, None))
    for line in ("one", "two", "three"):
        more.put(line)
    assert lines.arrived(60)
    while lines._queue.qsize() < 2:
        time.sleep(0.001)
    found = windows(lines, 2)
    assert [next(found), next(found)] == [["one", "two"], ["three"]]  # though a fourth may come
    more.put("four")
    more.put(None)
    assert list(found) == [["four"]]
    assert list(lines) == []


def test_what_goes_wrong_is_told_where_lines_are_wanted():
    def broken():
        yield "one"
        raise InputError("line 2 is not UTF-8")

    with pytest.raises(InputError, match="line 2"):
        list(windows(Arriving(broken()), 5))


def test_an_interruption_that_wakes_nobody_is_noticed(monkeypatch):
    """Ctrl-C just before a wait: Python has noted it, and the wait knows nothing of it."""
    monkeypatch.setattr(arriving, "AWAKE", 0.1)
    more = queue.Queue()
    (noted := threading.Timer(0.3, _thread.interrupt_main)).start()
    (too_late := threading.Timer(30, more.put, ["one"])).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        next(Arriving(iter(more.get, None)))
    assert time.monotonic() - began < 20
    noted.join()
    too_late.cancel()
    more.put(None)


def test_the_first_line_does_not_wait_for_ever():
    """A source that always has one more to say, and soon, is cut all the same."""

    class Steady:
        def __init__(self):
            self.left = 1000

        def __iter__(self):
            return self

        def __next__(self):
            self.left -= 1
            if not self.left:
                raise StopIteration
            time.sleep(0.01)
            return self.left

        def arrived(self, seconds):
            return seconds > 0

    assert len(next(windows(Steady(), 1000))) < 999
    assert len(next(windows(Steady(), 20, whole=True))) == 20


def test_others_are_cut_into_equal_windows():
    assert list(windows(iter("abcde"), 2)) == [["a", "b"], ["c", "d"], ["e"]]
    assert list(windows(iter(""), 2)) == []
