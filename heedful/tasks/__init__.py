"""The tasks that a run can be trained for, one file each, and `Task`, the interface of all of them."""

from heedful.core.plugins import find_task, task_names
from heedful.tasks.task import Task

__all__ = ["Task", "find_task", "task_names"]
