"""The checkpoints of a run folder: files with the exact training state after some update."""

import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from heedful.config.format_1 import progress_from_format_1
from heedful.core.errors import InputError
from heedful.core.storage import plain_file, read_checked, with_checksum, write_atomically
from heedful.runs.weights import count_elements

FOLDER = "state"
PROGRESS = {"update", "seconds", "best", "best_update", "waited", "data"}  # keys that every checkpoint has


class CheckpointFiles:
    """The checkpoints in a run folder.

    Args:
        folder: the run folder.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)

    def paths(self) -> list[Path]:
        """Return the files, oldest first; none if there is no such folder."""
        return sorted((self.folder / FOLDER).glob("[0-9]" * 8 + ".safetensors"))

    def last_update(self) -> int:
        """Return the number of updates of the newest checkpoint; 0 if there is none."""
        return max((int(path.stem) for path in self.paths()), default=0)

    def any_written(self) -> bool:
        """Return whether any file was written, a damaged one included."""
        return any((self.folder / FOLDER).glob("*"))

    def save(self, arrays: Mapping[str, np.ndarray], progress: dict[str, Any], keep: int, every: int = 1) -> Path:
        """Write a checkpoint after `progress["update"]` updates, and delete old ones.

        The new checkpoint is kept, and the last `keep` whose update is a multiple of `every`. A checkpoint saved on a
        signal does not count, because the last ones are averaged.
        """
        path = self.folder / FOLDER / f"{progress['update']:08d}.safetensors"
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, with_checksum(arrays, {"progress": json.dumps(progress)}))
        regular = [state for state in self.paths() if int(state.stem) % every == 0]
        for old in {*self.paths()} - {path, *regular[-keep:]}:
            old.unlink()
        return path

    def read(self, path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return (arrays, progress) of one of `paths`; raise `InputError` if it is damaged or not a checkpoint."""
        arrays, metadata = read_checked(plain_file(self.folder, path.relative_to(self.folder)))
        try:
            progress = json.loads(metadata["progress"])
        except (KeyError, ValueError, RecursionError):
            progress = None
        if not isinstance(progress, dict) or not progress.keys() >= PROGRESS:
            raise InputError(f"{path} is not a training state: it contains no progress.")
        return arrays, progress_from_format_1(progress)

    def read_last(self, report: Callable[[str], Any] = print) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return (arrays, progress) of the newest intact checkpoint; damaged ones are reported and skipped.

        Raises:
            InputError: there is none.
        """
        for path in reversed(self.paths()):
            try:
                return self.read(path)
            except InputError as error:
                report(f"{path} cannot be used ({error}); falling back to the state before it.")
                path.rename(path.with_suffix(".damaged"))  # so that it does not count towards `keep`
        raise self._none()

    def largest(self) -> tuple[int, Path]:
        """Return the element count and the path of the largest checkpoint; raise `InputError` if there is none."""
        sizes = []
        for path in self.paths():
            with contextlib.suppress(InputError):  # `read_last` reports damaged ones
                sizes.append((count_elements(plain_file(self.folder, path.relative_to(self.folder))), path))
        if not sizes:
            raise self._none()
        return max(sizes)

    def _none(self):
        return InputError(f"{self.folder} holds no training state to resume from.")
