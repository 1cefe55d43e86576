"""What a training needs before it begins: tokenizers, and a config completed for the text and the available memory."""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from heedful import backend
from heedful.config import Config, settings
from heedful.config.settings import COMMAND_LINE
from heedful.core.errors import InputError
from heedful.data.tokenizer import Tokenizer
from heedful.runs.run import Run
from heedful.tasks.task import Task
from heedful.training.cost_estimate import FIRST, Trial, largest_batch
from heedful.workflows.weighted_text import files_by_weight


def complete(task: Task, config: Config, report: Callable[[str], Any]) -> tuple[Config, Sequence[Tokenizer]]:
    """Return a config of a task, completed with what depends on text and memory, and the tokenizers.

    Raises:
        InputError: bad text, or settings that this machine or the files rule out; most are found before text is read.
    """
    config.train.refuse_impossible_rate()
    backend.training_devices(config.train.devices)  # refuses more than there are
    files_by_weight(task, config)  # refuses patterns without a file
    backend.keep_compilations()
    requested_schedule = config.train.schedule
    config, tokenizers = task.prepare(config, task.find_corpora(config))
    if (train := config.train).schedule != requested_schedule:
        report(f"train.schedule = {train.schedule!r} at {train.learning_rate:g}, since all weights are pretrained")
    report("vocabulary: " + " and ".join(f"{len(t):,}" for t in dict.fromkeys(tokenizers)))
    if config.data.batch_tokens == "auto":
        config = _with_largest_batch(config, tokenizers)
        report(f"largest batch: {config.data.batch_tokens:,} tokens")
    return config, tokenizers


def origins_of_prepared(asked: Config, config: Config, origins: Mapping[str, str]) -> dict[str, str]:
    """Return where the settings of a completed config come from, by full name.

    Args:
        asked: the config that was asked for.
        config: the same, completed.
        origins: where its settings came from.

    Raises:
        InputError: a setting from the command line has no effect: `train.init_from` brings another value.
    """
    if not asked.train.init_from:
        return dict(origins)
    changed = settings.changed(asked, config)
    for name, (before, after) in changed.items():
        if origins.get(name, "").startswith(COMMAND_LINE) and before not in (None, "auto"):
            raise InputError(
                f"--{name} {before} would have no effect: a training that starts from {asked.train.init_from} "
                f"has {name} = {after!r}. Leave it out."
            )
    return dict(origins) | dict.fromkeys(changed, f"train.init_from, {asked.train.init_from}")


def _with_largest_batch(config, tokenizers):
    def sized(**sizes):
        return dataclasses.replace(config, data=dataclasses.replace(config.data, **sizes))

    def attempt(tokens):
        with tempfile.TemporaryDirectory() as folder:
            Run.create(folder, sized(batch_tokens=tokens, max_shapes=1), *dict.fromkeys(tokenizers))
            command = [sys.executable, "-m", "heedful.workflows.memory_trial", folder]
            # On a GPU JAX would take most of the memory at once, whatever the batches need.
            environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
            done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode == 1 and tokens == FIRST:
            raise InputError(f"The memory trial failed: {' '.join(done.stderr.splitlines()[-1:])}")
        return None if done.returncode else Trial(**json.loads(done.stdout.splitlines()[-1]))

    return sized(batch_tokens=largest_batch(attempt))
