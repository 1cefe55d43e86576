"""The interface of tasks: everything in which they differ."""

from heedful.tasks.task_checks import Probe, TaskChecks
from heedful.tasks.task_config import TaskConfig
from heedful.tasks.task_model import TaskModel
from heedful.tasks.task_text import Corpora, TaskText
from heedful.training.validator import Validator

__all__ = ["SCORED_TOKENS", "Corpora", "Probe", "Task", "Validator"]

SCORED_TOKENS = 4096  # maximum per scored batch: the last batch of each shape is filled up with padding


class Task(TaskConfig, TaskText, TaskModel, TaskChecks):
    """What a run is trained for. A task is stateless: everything it needs is an argument.

    Methods import heavy packages (Keras, sacrebleu) only when called, so that a config can be checked and a help text
    printed without them. Another package adds a task by a subclass and the entry point
    `heedful.tasks: NAME = "package.module:Class"`.
    """
