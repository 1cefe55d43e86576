"""One trial: a training with some settings that is paused and goes on, each time in a process of its own.

A process that runs out of memory, or whose loss is no longer finite, ends its trial and not the tuning.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heedful.runs.run import CONFIG, Run
from heedful.runs.scores.provenance import read

LOWER_IS_BETTER = ("loss", "bits_per_byte")
OUTPUT = "output.txt"
MANY = 1_000_000  # updates: the minutes end the training
# A trial can go on from where it was paused only if its learning rate does not depend on its end. The average of the
# weights stands in for the fall of the rate. What follows a training and costs time is left out.
ALWAYS: dict[str, Any] = {
    "train.schedule": "constant", "train.moving_average": 0.98, "train.average": 0, "train.patience": 0,
    "train.epochs": 0, "train.keep": 1, "train.check": False, "train.examine": False, "train.tensorboard": False,
    "train.snapshots": False, "train.select_by": "loss", "train.validate_sentences": 0, "data.test": [],
}  # fmt: skip
WARMUP = 200  # updates at most


@dataclass
class Trial:
    """A trial and its results so far.

    Args:
        settings: those that differ from the recipe, by full name.
        scores: after each round.
        updates: after each round, the number of updates.
        failure: why it cannot go on, if it cannot.
    """

    settings: dict[str, Any]
    scores: list[float] = field(default_factory=list)
    updates: list[int] = field(default_factory=list)
    failure: str = ""

    def __str__(self) -> str:
        shown = (f"{name.split('.')[-1]} {value}" for name, value in self.settings.items())
        return ", ".join(shown) or "the recipe's own settings"


@dataclass(frozen=True)
class Round:
    """How long the trials of a round train, in all: `minutes`, or `updates`."""

    minutes: float = 0.0
    updates: int = 0

    def __str__(self) -> str:
        return f"{self.minutes:.3g} minutes" if self.minutes else f"{self.updates:,} updates"

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that end a training."""
        return {"train.minutes": self.minutes, "train.updates": self.updates or MANY}


def train_trial(trial: Trial, folder: Path, recipe: Path, warmup: int, until: Round, text: str, metric: str) -> None:
    """Train a trial, from the start or from where it was paused, until the end of a round; add its result to it.

    Args:
        trial: what was tried.
        folder: of its run.
        recipe: the recipe.
        warmup: updates of the recipe's warm-up.
        until: the end of the round.
        text: the name of the validation text.
        metric: the score on it that counts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / CONFIG).is_file():
        given = ["--resume", str(folder), *_arguments(until.settings)]
    else:
        validate_every = until.updates or MANY
        settings = ALWAYS | {"train.warmup_updates": min(warmup, WARMUP), "train.validate_every": validate_every}
        given = [str(recipe), "--run", str(folder), *_arguments(settings | until.settings | trial.settings)]
    before = len(_scores(folder, text))
    with (folder / OUTPUT).open("a", encoding="utf-8") as output:
        code = _run([sys.executable, "-m", "heedful", "train", *given], output)
    scores = _scores(folder, text)
    if len(scores) == before or metric not in scores[-1]:
        lines = (folder / OUTPUT).read_text(encoding="utf-8").strip().splitlines()
        trial.failure = lines[-1] if lines else f"exit code {code}"
        return
    trial.scores.append(float(scores[-1][metric]))
    trial.updates.append(int(Run.open(folder).log.read()[-1]["update"]))


def _scores(folder, text):
    """Return the scores of a trial's run on a text so far."""
    scores = read(Run.open(folder)) if (folder / CONFIG).is_file() else []
    return [each for each in scores if each.get("data") == text]


def _run(command, output):
    """Run a command; when this process is interrupted, let the command save its state first."""
    process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        return process.wait()
    except BaseException:
        process.send_signal(signal.SIGTERM)
        process.wait()
        raise


def _arguments(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, value in settings.items():
        yield f"--{name}"
        yield json.dumps(value) if isinstance(value, (bool, list)) else str(value)


def metric_of(task: Any) -> str:
    """Return the score by which trials of a task are compared: chrF for translations, since BLEU is near 0 at first."""
    return "chrf" if task.translates else task.compared_by[0]
