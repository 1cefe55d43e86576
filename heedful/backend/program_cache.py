"""A bounded, thread-safe cache of compiled programs."""

import collections
import threading
from collections.abc import Callable, Hashable

MAX_PROGRAMS = 256  # of a few MB each


class ProgramCache:
    """The most recently used programs by key. A new program evicts the least recently used one.

    Threads may share it. Two threads that ask for the same new program compile it once.

    Args:
        size: maximum number of programs.
    """

    def __init__(self, size: int = MAX_PROGRAMS):
        self._size, self._lock = size, threading.Lock()
        self._programs: collections.OrderedDict[Hashable, _Program] = collections.OrderedDict()

    def get(self, key: Hashable, create: Callable[[], Callable]) -> Callable:
        """Return the program of a key; if it is missing, that which `create` returns, compiled at its first call."""
        with self._lock:
            program = self._programs.get(key)
            if program is None:
                program = self._programs[key] = _Program(create())
            self._programs.move_to_end(key)
            while len(self._programs) > self._size:
                self._programs.popitem(last=False)
            return program

    def __len__(self) -> int:
        return len(self._programs)


class _Program:
    """A program whose first call compiles it; other threads wait until that call returns."""

    def __init__(self, function):
        self._function, self._lock, self._compiled = function, threading.Lock(), False

    def __call__(self, *arguments):
        if self._compiled:
            return self._function(*arguments)
        with self._lock:
            if not self._compiled:
                result = self._function(*arguments)
                self._compiled = True
                return result
        return self._function(*arguments)
