"""Tasks, metrics and loggers: those of heedful, and those that other packages add through entry points."""

import functools
import importlib.metadata
from typing import Any

from heedful.core.errors import InputError

TASKS, METRICS, LOGGERS = "heedful.tasks", "heedful.metrics", "heedful.loggers"  # groups of entry points
EXTERNAL = "external."  # prefix of metrics that a program computes: the mean of its numbers
BUILT_IN = {
    TASKS: {
        "translate": "heedful.tasks.translate:Translate",
        "generate": "heedful.tasks.generate:Generate",
        "fill": "heedful.tasks.fill:Fill",
        "classify": "heedful.tasks.classify:Classify",
    },
    METRICS: {
        "bleu": "heedful.runs.scores.metrics:BLEU",
        "chrf": "heedful.runs.scores.metrics:CHRF",
        "accuracy": "heedful.runs.scores.metrics:ACCURACY",
        "loss": "heedful.runs.scores.metrics:LOSS",
        "bits_per_byte": "heedful.runs.scores.metrics:BITS_PER_BYTE",
        "ter": "heedful.runs.scores.metrics:TER",
        "chrf++": "heedful.runs.scores.metrics:CHRF_WITH_WORDS",
    },
    LOGGERS: {
        "wandb": "heedful.training.loggers.wandb:WandbLogger",
        "mlflow": "heedful.training.loggers.mlflow:MlflowLogger",
        "trackio": "heedful.training.loggers.trackio:TrackioLogger",
    },
}


@functools.cache
def _entry_points(group):
    """Return the entry points of a group by name; packages cannot override heedful's own names."""
    built_in = {name: importlib.metadata.EntryPoint(name, value, group) for name, value in BUILT_IN[group].items()}
    added = {point.name: point for point in importlib.metadata.entry_points(group=group)}
    return built_in | {name: point for name, point in sorted(added.items()) if name not in built_in}


def _find(group, kind, name):
    points = _entry_points(group)
    if name not in points:
        raise InputError(f"There is no {kind} {name!r}: choose one of {', '.join(points)}.")
    try:
        return points[name].load()
    except (ImportError, AttributeError) as error:
        raise InputError(f"The {kind} {name!r} ({points[name].value}) cannot be imported: {error}.") from error


def task_names() -> tuple[str, ...]:
    """Return the names of all tasks, those of heedful first; none of them is imported."""
    return tuple(_entry_points(TASKS))


@functools.cache
def find_task(name: str) -> Any:
    """Return the `Task` with a name.

    Raises:
        InputError: no task has this name, or its package cannot be imported.
    """
    return _find(TASKS, "task", name)()


def metric_names() -> tuple[str, ...]:
    """Return the names of all metrics, those of heedful first; none of them is imported."""
    return tuple(_entry_points(METRICS))


@functools.cache
def find_metric(name: str) -> Any:
    """Return the `Metric` with a name; errors as in `find_task`."""
    if name.startswith(EXTERNAL):
        return _find(METRICS, "metric", "accuracy")  # a mean too
    return _find(METRICS, "metric", name)


def find_logger(name: str) -> Any:
    """Return the class of the `Logger` with a name; errors as in `find_task`, also if its library is missing."""
    made = _find(LOGGERS, "logger", name)

    def opened(*arguments: Any) -> Any:
        try:
            return made(*arguments)
        except ImportError as error:
            raise InputError(f"The logger {name!r} needs a package: {error}. pip install {name}") from error

    return opened
