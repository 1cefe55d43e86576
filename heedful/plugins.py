"""Tasks that heedful brings, and those that other packages add through the entry points `heedful.tasks`."""

import functools
import importlib.metadata

from heedful.errors import InputError

TASKS = "heedful.tasks"
BUILT_IN = {
    "translate": "heedful.tasks.translate:Translate",
    "generate": "heedful.tasks.generate:Generate",
    "fill": "heedful.tasks.fill:Fill",
    "classify": "heedful.tasks.classify:Classify",
}


@functools.cache
def _entry_points():
    """Return the entry points of all tasks by name; the name of a built-in task cannot be taken."""
    added = {point.name: point for point in importlib.metadata.entry_points(group=TASKS)}
    own = {name: importlib.metadata.EntryPoint(name, value, TASKS) for name, value in BUILT_IN.items()}
    return own | {name: point for name, point in sorted(added.items()) if name not in own}


def task_names():
    """Return the names of all tasks, those of heedful first; none of them is imported."""
    return tuple(_entry_points())


@functools.cache
def find_task(name):
    """Return the `Task` of a name.

    Raises:
        InputError: there is none, or the package that adds it cannot be imported.
    """
    points = _entry_points()
    if name not in points:
        raise InputError(f"task = {name!r} is none of {', '.join(map(repr, points))}.")
    try:
        return points[name].load()()
    except ImportError as error:
        raise InputError(f"The task {name!r} ({points[name].value}) cannot be imported: {error}.") from error
