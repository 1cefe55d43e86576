"""State that searches with one model share between calls and threads."""

import threading

from heedful.backend.program_cache import ProgramCache

MIN_LONGER = 3  # minimum number of longer results that raises the expected length
MAX_LONGER_SHARE = 0.05  # of sources whose results are longer than expected; each of them is searched a second time


class SharedState:
    """Compiled programs, and the expected length of results."""

    def __init__(self) -> None:
        self.programs = ProgramCache()
        self.length_ratio = 1.0  # expected tokens of a result for each source token
        self._searched = self._longer = 0  # sources since `length_ratio` was raised, and those with longer results
        self._lock = threading.Lock()

    def observe(self, searched: int, longer: int) -> None:
        """Raise the expected length if many results were longer; a single one must not change every shape."""
        with self._lock:
            self._searched, self._longer = self._searched + searched, self._longer + longer
            if self._longer >= MIN_LONGER and self._longer > self._searched * MAX_LONGER_SHARE:
                self.length_ratio *= 1.5
                self._searched = self._longer = 0
