"""MLflow. Its environment variables apply, such as MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heedful.training.loggers import PROJECT

LONGEST = 500  # characters of a parameter


class MlflowLogger:
    """A run of MLflow; see `Logger`."""

    loses_records = False

    def __init__(self, folder: Path, settings: Mapping[str, Any], id: str | None):
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient()
        if id is not None:
            self.id: str = id
            self._client.update_run(id, status="RUNNING")
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        experiment = self._client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(name)
        self.id = self._client.create_run(number, run_name=folder.resolve().name).info.run_id
        for setting, value in settings.items():
            self._client.log_param(self.id, setting, str(value)[:LONGEST])

    def write(self, update: int, scalars: Mapping[str, float]) -> None:
        """Add values at an update."""
        for name, value in scalars.items():
            self._client.log_metric(self.id, name, value, step=update)

    def close(self) -> None:
        """Finish the run."""
        self._client.set_terminated(self.id)
