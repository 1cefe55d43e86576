"""Load a run folder as the object that performs its task."""

from pathlib import Path
from typing import Any

from heedful import backend
from heedful.core.errors import InputError
from heedful.runs.run import Run


def load(path: str | Path, *more: str | Path) -> Any:
    """Return the predictor of a trained run: a `Translator`, `Generator`, `MaskFiller` or `TextClassifier`.

    Several translation runs form an ensemble. From then on, programs that JAX compiles are cached on disk (see
    `core/cache.py`), unless JAX already has a folder for them.

    Raises:
        InputError: a folder is missing, incomplete or of a newer format, its weights do not match its config, or the
            runs have different vocabularies.
    """
    backend.keep_compilations()
    runs = [Run.open(folder) for folder in (path, *more)]
    task = runs[0].task
    if len(runs) > 1 and not task.ensembles:
        raise InputError(f"Runs of task {task.name!r} cannot form an ensemble: load one run.")
    return task.predictor([run.of_task(task.name) for run in runs])
