"""trackio, which keeps curves on this machine; `trackio show` draws them. Its environment variables apply."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heedful.training.loggers import PROJECT


class TrackioLogger:
    """A run of trackio; see `Logger`. trackio knows runs by their names, and writes records a moment later."""

    loses_records = True

    def __init__(self, folder: Path, settings: Mapping[str, Any], id: str | None):
        import trackio

        self.id: str = id or folder.resolve().name
        project = os.environ.get("TRACKIO_PROJECT", PROJECT)
        self._known = _known_values(project, self.id) if id else set()
        self._run = trackio.init(
            project=project, name=self.id, config=dict(settings), embed=False,
            resume="must" if id else "never",
        )  # fmt: skip

    def write(self, update: int, scalars: Mapping[str, float]) -> None:
        """Add values at an update."""
        new = {name: value for name, value in scalars.items() if (update, name) not in self._known}
        if new:
            self._run.log(new, step=update)

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


def _known_values(project, run):
    """Return the updates and names of the values that a run on this machine has."""
    from trackio.sqlite_storage import SQLiteStorage

    return {(entry["step"], name) for entry in SQLiteStorage.get_logs(project, run) for name in entry}
