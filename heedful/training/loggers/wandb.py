"""Weights & Biases. Its environment variables apply, such as WANDB_PROJECT and WANDB_MODE=offline."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heedful.training.loggers import PROJECT


class WandbLogger:
    """A run of Weights & Biases; see `Logger`. An update that it has already, it ignores, with a warning."""

    loses_records = True  # in offline mode, which buffers them

    def __init__(self, folder: Path, settings: Mapping[str, Any], id: str | None):
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT), name=folder.resolve().name, dir=folder,
            config=dict(settings), id=id, resume="allow" if id else None,
        )  # fmt: skip
        self.id: str = self._run.id

    def write(self, update: int, scalars: Mapping[str, float]) -> None:
        """Add values at an update."""
        self._run.log(dict(scalars), step=update)

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()
