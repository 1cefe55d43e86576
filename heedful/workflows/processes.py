"""Train in several processes: process 0 does all work but the updates, and the others follow it in these."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from heedful import backend
from heedful.config import Config
from heedful.core.errors import InputError
from heedful.core.progress import note
from heedful.data.tokenizer import Tokenizer
from heedful.runs.run import Run
from heedful.training.signals import Signals
from heedful.training.updates import Updates
from heedful.workflows.agreement import require_agreement
from heedful.workflows.training import Training


def train_together(asked: dict[str, Any], lead: Callable[[], int], resume: str) -> int:
    """Train in this process, one of those that joined; return the exit code.

    If another process is gone, or this one fails with another error than an `InputError`, it ends at once.

    Args:
        asked: what this process was asked for, by name; it must be the same in all.
        lead: what process 0 does: it trains, and returns the exit code.
        resume: the command that continues the training.

    Raises:
        InputError: the processes disagree.
    """
    require_agreement(asked)
    with backend.abandoned_on_error(resume):
        code = _follow() if backend.process_index() else _lead(lead)
    backend.leave()
    return code


def _lead(lead):
    """Train in process 0; the others end when it ends."""
    try:
        code = lead()
    except InputError as error:
        note(f"heedful: {error}")
        code = 2
    backend.exchange({"end": code})
    return code


def _follow():
    """Do what process 0 says until it ends; return its exit code."""
    updates = None
    with Signals() as signals:
        while True:
            order = backend.exchange(None)[0]
            if "end" in order:
                return order["end"]
            if "begin" in order:
                updates, problem = _prepared(order["begin"])
                backend.exchange(problem)
            elif updates is not None:
                updates.follow(order["run"], lambda: signals.received is not None)


def _prepared(begin):
    """Return the `Updates` of another process, and what is wrong, in words."""
    try:
        backend.keep_compilations()
        config = Config.from_text(begin["config"])
        run = Run(Path(begin["path"]), config, *map(Tokenizer.from_json, begin["tokenizers"]))
        training = Training(run, report=lambda line: None)
        if training.fingerprint != begin["text"]:
            return None, "its training text differs from that of process 0"
        backend.set_seed(config.train.seed)
        resume = backend.resume_command(run.path)
        return Updates(training.fresh_model(), training.examples, config.train, resume), ""
    except InputError as error:
        return None, str(error)
