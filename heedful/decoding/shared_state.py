"""What searches with one model share between calls and threads."""

import threading

from heedful.backend.program_cache import ProgramCache

FEW = 3  # sentences that are longer than expected without changing the expectation
LONGER_SHARE = 0.05  # share of sentences that may be longer than expected, and need a second search


class SharedState:
    """Compiled programs, and the expected length of results."""

    def __init__(self):
        self.programs = ProgramCache()
        self.growth = 1.0  # expected tokens of a result for each source token
        self._searched = self._longer = 0  # sources since `growth` was raised, and those with longer results
        self._lock = threading.Lock()

    def observe(self, searched: int, longer: int) -> None:
        """Expect longer results from now on if many were; a single one must not change every shape."""
        with self._lock:
            self._searched, self._longer = self._searched + searched, self._longer + longer
            if self._longer >= FEW and self._longer > self._searched * LONGER_SHARE:
                self.growth *= 1.5
                self._searched = self._longer = 0
