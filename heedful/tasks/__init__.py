"""What a run can be trained for: one file for each task, and `Task`, what all of them implement."""

from heedful.plugins import find_task, task_names
from heedful.tasks.task import Task

__all__ = ["Task", "find_task", "task_names"]
