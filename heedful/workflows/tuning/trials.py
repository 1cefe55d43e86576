"""One trial: a training with some settings that is paused and continued, each time in a process of its own.

A process that runs out of memory, or whose loss is no longer finite, ends its trial and not the tuning.
"""

import math
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heedful.config import Config, settings
from heedful.config.idle_settings import is_of_task
from heedful.core.distributed.parent import PARENT, STANDARD_INPUT
from heedful.core.errors import InputError
from heedful.core.plugins import find_task
from heedful.data.encoded import encode
from heedful.runs.run import CONFIG, Run
from heedful.tasks.translation_data import protected

PER_CHARACTER = "loss_per_character"
LOWER_IS_BETTER = ("loss", PER_CHARACTER)
OUTPUT = "output.txt"
MANY = 1_000_000  # updates: the minutes end the training
# A trial can go on from where it was paused only if its learning rate does not depend on its end. The average of the
# weights stands in for the fall of the rate. What follows a training and costs time is left out.
ALWAYS: dict[str, Any] = {
    "train.schedule": "constant", "train.moving_average": 0.98, "train.average": 0, "train.patience": 0,
    "train.epochs": 0, "train.keep": 1, "train.check": False, "train.examine": False, "train.tensorboard": False,
    "train.snapshots": False, "train.minutes_of": "updates",
    "train.select_by": "loss", "train.score": False,
}  # fmt: skip
BAD_INPUT = 2  # exit code
SCHEDULE_FREE = "schedule_free"  # an optimizer for the schedule `constant`
OF_TRIALS = frozenset({  # settings for which trials have their own values, in addition
    "train.minutes", "train.updates", "train.epochs", "train.warmup_updates", "train.validate_every",
    "train.validate_sentences", "data.planned_updates", "data.max_shapes",
})  # fmt: skip
WARMUP = 100  # updates at most
TRANSLATED = 300  # validation sentences that are translated to compare trials
SHAPES = 3  # of batches at most, each of which is compiled once; with packed rows, one


class RefusedRecipe(InputError):
    """A recipe that cannot be trained."""


@dataclass
class Trial:
    """A trial and its results so far.

    Args:
        settings: those that differ from the recipe, by full name.
        scores: after each round.
        updates: after each round, the number of updates.
        failure: why it cannot go on, if it cannot.
        seconds: of each round, with starting, compiling and scoring.
    """

    settings: dict[str, Any]
    scores: list[float] = field(default_factory=list)
    updates: list[int] = field(default_factory=list)
    failure: str = ""
    seconds: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Round:
    """How long trials have trained after a round: `minutes` beside compiling, or `updates`; `metric` compares them."""

    minutes: float = 0.0
    updates: int = 0
    metric: str = "loss"

    def __str__(self) -> str:
        return f"{self.minutes:.3g} minutes" if self.minutes else f"{self.updates:,} updates"

    @property
    def length(self) -> dict[str, Any]:
        """The settings that end a training."""
        return {"train.minutes": self.minutes, "train.updates": self.updates or MANY}

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that end a training, and those that its score needs."""
        sentences_for = {"chrf": TRANSLATED, PER_CHARACTER: 0}
        if self.metric not in sentences_for:
            return self.length
        return self.length | {"train.validate_sentences": sentences_for[self.metric]}


def train_trial(trial: Trial, folder: Path, recipe: Path, config: Config, until: Round) -> None:
    """Train a trial, from the start or from where it was paused, until the end of a round; add its result to it.

    Args:
        trial: what was tried.
        folder: of its run.
        recipe: the recipe.
        config: that of the recipe.
        until: the end of the round.

    Raises:
        RefusedRecipe: `heedful train` refuses the recipe itself, before a run begins.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / CONFIG).is_file():
        now = settings.flat(Run.open(folder).config)
        new = {name: value for name, value in until.settings.items() if now[name] != value}
        given = ["--resume", str(folder), *settings.as_arguments(new)]
    else:
        given = [str(recipe), "--run", str(folder), *settings.as_arguments(first_settings(trial, config, until))]
    with (folder / OUTPUT).open("a", encoding="utf-8") as output:
        code = _run([sys.executable, "-m", "heedful", "train", *given], output)
    run = Run.open(folder) if (folder / CONFIG).is_file() else None
    log = run.log.read()[-1:] if run else []
    reached, score = (log[0]["update"], _score(run, log[0], until.metric)) if log else (0, math.nan)
    if reached in trial.updates or not math.isfinite(score):
        lines = (folder / OUTPUT).read_text(encoding="utf-8").strip().splitlines()
        failure = lines[-1] if lines else f"exit code {code}"
        if code == BAD_INPUT and not trial.settings and not (folder / CONFIG).is_file():
            raise RefusedRecipe(failure.removeprefix("heedful: "))
        trial.failure = failure
        return
    trial.scores.append(score)
    trial.updates.append(reached)


def _score(run, entry, metric):
    """Return a score on the validation text from an entry of the log; NaN if the entry has none."""
    if metric == PER_CHARACTER:
        return float(entry.get("valid_loss", math.nan)) * _tokens_per_character(run)
    return float(entry.get(f"valid_{metric}", math.nan))


def _tokens_per_character(run: Run) -> float:
    """Return the predicted tokens per character of those validation texts that the loss is computed on."""
    corpus = protected(run.config, run.task.find_corpora(run.config)["valid"])
    targets = encode(corpus, run.source_tokenizer, run.target_tokenizer, run.config.model.max_length).target
    characters = sum(len(run.target_tokenizer.decode(targets[index].tolist())) for index in range(len(targets)))
    return (len(targets.flat) + len(targets)) / max(characters, 1)  # each text has an end token


def first_settings(trial: Trial, config: Config, until: Round) -> dict[str, Any]:
    """Return the settings, beside those of the recipe, with which a trial begins; none is one of another task."""
    packed = trial.settings.get("data.pack_tokens", config.data.pack_tokens)
    values = ALWAYS | {
        "train.warmup_updates": min(config.train.warmup_updates, WARMUP),
        "train.validate_every": until.updates or MANY,
        "data.max_shapes": 1 if packed else min(config.data.max_shapes, SHAPES),
    }
    if trial.settings.get("train.optimizer", config.train.optimizer) == SCHEDULE_FREE:
        values |= {"train.moving_average": 0.0}  # it averages the weights itself
    if until.updates:
        del values["train.minutes_of"]
    values = {name: value for name, value in values.items() if is_of_task(config.task, name)}
    return values | until.settings | trial.settings


def settings_of_trials(chosen: Mapping[str, tuple[Any, str]]) -> dict[str, Any]:
    """Return those of the chosen settings that trials have: not those of the length and the end of a training."""
    return {name: value for name, (value, _) in chosen.items() if name not in ALWAYS.keys() | OF_TRIALS}


def _run(command, output):
    """Run a command; when this process is interrupted, let the command save its state first."""
    # In a session of its own: Ctrl-C would reach it too, and at a second signal a training stops without its state.
    # Its standard input closes when this process ends, even if it is killed: then it ends too, and frees its folder.
    process = subprocess.Popen(
        command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.PIPE, start_new_session=True,
        env=os.environ | {PARENT: STANDARD_INPUT},
    )  # fmt: skip
    try:
        return process.wait()
    except BaseException:
        process.send_signal(signal.SIGTERM)
        process.wait()
        raise
    finally:
        assert process.stdin is not None  # noqa: S101 - for the type checker
        process.stdin.close()


def metrics_of(config: Config) -> tuple[str, str]:
    """Return the score by which trials are compared, and that of the last round.

    Translations by a model that is hardly trained say nothing about it, and take longer than its training. Its loss per
    character is known at once, and can be compared between vocabularies. In the last round chrF counts, since label
    smoothing may raise the loss of the better model.
    """
    task = find_task(config.task)
    if task.translates:
        return PER_CHARACTER, "chrf"
    metric = task.default_selection(config) or "loss"
    return metric, metric
