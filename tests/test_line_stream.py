"""Lines that arrive over time: no batch waits for lines that do not come, and no line is lost."""

import _thread
import queue
import threading
import time

import pytest

from heedful.core import line_stream
from heedful.core.errors import InputError
from heedful.core.line_stream import LineStream, line_batches

pytestmark = pytest.mark.any_backend


def test_waiting_lines_form_one_batch():
    more = queue.Queue()
    lines = LineStream(iter(more.get, None))
    for line in ("one", "two", "three"):
        more.put(line)
    assert lines.arrived(60)
    while lines._queue.qsize() < 2:
        time.sleep(0.001)
    found = line_batches(lines, 2)
    assert [next(found), next(found)] == [["one", "two"], ["three"]]  # though a fourth may come
    more.put("four")
    more.put(None)
    assert list(found) == [["four"]]
    assert list(lines) == []


def test_an_error_while_reading_is_raised_in_the_consumer():
    def broken():
        yield "one"
        raise InputError("line 2 is not UTF-8")

    with pytest.raises(InputError, match="line 2"):
        list(line_batches(LineStream(broken()), 5))


def test_an_interrupt_just_before_a_wait_is_noticed(monkeypatch):
    """Guards against a Ctrl-C that Python records just before a wait: it does not end the wait."""
    monkeypatch.setattr(line_stream, "POLL", 0.1)
    more = queue.Queue()
    (noted := threading.Timer(0.3, _thread.interrupt_main)).start()
    (too_late := threading.Timer(30, more.put, ["one"])).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        next(LineStream(iter(more.get, None)))
    assert time.monotonic() - began < 20
    noted.join()
    too_late.cancel()
    more.put(None)


def test_a_steady_source_does_not_delay_its_first_line_forever():
    """A source whose next line always arrives soon is still cut into batches."""

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

    assert len(next(line_batches(Steady(), 1000))) < 999
    assert len(next(line_batches(Steady(), 20, whole=True))) == 20


def test_plain_iterators_are_cut_into_batches_of_equal_size():
    assert list(line_batches(iter("abcde"), 2)) == [["a", "b"], ["c", "d"], ["e"]]
    assert list(line_batches(iter(""), 2)) == []
