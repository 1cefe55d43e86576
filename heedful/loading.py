"""A run folder as the object that does its task."""

from heedful.cache import keep_compilations
from heedful.errors import InputError
from heedful.run import Run


def load(path, *more):
    """Return what a trained run is for: a `Translator`, `Generator`, `Filler` or `Labeller`.

    Several translators become one, an ensemble. Programs that JAX compiles from then on are kept on disk (see
    `cache.py`), unless JAX has a folder for them already.

    Raises:
        InputError: a folder is missing, incomplete, of a newer format, its weights do not fit its config, or the runs
            have different vocabularies.
    """
    keep_compilations()
    runs = [Run.open(folder) for folder in (path, *more)]
    task = runs[0].task
    if len(runs) > 1 and not task.ensembles:
        raise InputError(f"Runs of task {task.name!r} cannot vote: load one run.")
    return task.predictor([run.of_task(task.name) for run in runs])
