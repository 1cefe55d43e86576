"""Successive halving: all trials train a little, and the best third of them continues (Jamieson and Talwalkar 2016)."""

import itertools
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from heedful.config import Config
from heedful.config.data import BUILT_IN
from heedful.core.errors import InputError, counted
from heedful.core.plugins import find_task
from heedful.core.storage import locked
from heedful.workflows.tuning.space import draw_trials, search_space
from heedful.workflows.tuning.state import REDUCTION, Chosen, Tuning
from heedful.workflows.tuning.trials import Round, Trial, metric_of, settings_of_trials, train_trial

TRIALS = "trials"  # folder
ROUNDS = 3
SHARE = 6  # of the minutes that a recipe without minutes gets for one training
OVERHEAD = 1.0  # minutes for starting, compiling and scoring a trial, until trials have shown how long that takes
FEWEST = 4  # trials
COUNTED_LINES = 200_000  # lines of the training text that are counted at most


def lines_of(config: Config) -> int:
    """Return the number of lines of a config's training text, up to `COUNTED_LINES`."""
    corpus = find_task(config.task).find_corpora(config)["train"]
    return sum(1 for _ in itertools.islice(iter(corpus), COUNTED_LINES))


def plan_rounds(config: Config, minutes: float) -> list[Round]:
    """Return how long the trials of each round train, if all trials together have some minutes; 0: in updates."""
    if minutes:
        last = config.train.minutes or minutes / SHARE
        return [Round(minutes=last / REDUCTION**number) for number in reversed(range(ROUNDS))]
    return [Round(updates=max(1, config.train.updates // REDUCTION**number)) for number in reversed(range(ROUNDS))]


def plan_tuning(
    config: Config, folder: Path, minutes: float, count: int, lines: int, seed: int = 1, chosen: Chosen | None = None
) -> Tuning:
    """Return a new search.

    Args:
        config: of the recipe.
        folder: where everything is kept.
        minutes: for all trials together; 0: `count` says how many.
        count: trials, whose rounds are counted in updates: the last one has `train.updates`.
        lines: of the training text.
        seed: of the draws.
        chosen: settings that the recipe leaves open, see `Tuning`.

    Raises:
        InputError: the minutes are too few, or the text is generated.
    """
    rounds = plan_rounds(config, minutes)
    if config.data.corpus in BUILT_IN:
        raise InputError(f"The text {config.data.corpus!r} is built in: tuning is for text of your own (data.train).")
    if minutes:
        count = _trials_within(minutes, rounds)
        if count < FEWEST:
            raise InputError(
                f"{minutes:g} minutes are too few for trials of up to {rounds[-1]}: give more (--minutes), or "
                "shorter trainings (--train.minutes)."
            )
    if count < FEWEST:
        raise InputError(f"Tuning compares at least {FEWEST} trials.")
    tuning = Tuning(folder, metric_of(config), rounds, [], minutes, chosen or {})
    complete, common = tuning.complete(config), settings_of_trials(tuning.chosen)
    trials = [Trial({}), Trial({"train.seed": config.train.seed + 1}), *([Trial(common)] if common else [])]
    drawn = draw_trials(search_space(complete, lines), count - len(trials), seed, complete)
    tuning.trials = [*trials, *(Trial(common | each) for each in drawn)]
    return tuning


def _trials_within(minutes, rounds, overhead=OVERHEAD):
    """Return how many trials fit, if each round of each takes `overhead` minutes besides its training."""
    for count in range(200, 0, -1):
        needed, trials, before = 0.0, count, 0.0
        for number, each in enumerate(rounds):
            trials = count if number == 0 else max(2, math.ceil(trials / REDUCTION))
            needed += trials * (each.minutes - before + overhead)
            before = each.minutes
        if needed <= minutes:
            return count
    return 0


def _plan_again(tuning, report):
    """Leave out trials for which the minutes do not suffice, now that some have shown what a trial takes."""
    spent = [trial.seconds[0] for trial in tuning.trials if trial.seconds and not trial.failure]
    overhead = max(0.0, statistics.fmean(spent) / 60 - tuning.rounds[0].minutes) if spent else OVERHEAD
    begun = [index + 1 for index, trial in enumerate(tuning.trials) if trial.scores or trial.failure]
    count = max(FEWEST, *begun, _trials_within(tuning.minutes, tuning.rounds, overhead))
    if count < len(tuning.trials):
        report(f"  a trial takes {60 * overhead:.0f} s besides its training: {counted(count, 'trial')} fit")
        del tuning.trials[count:]


def tune(tuning: Tuning, recipe: Path, config: Config, report: Callable[[str], Any]) -> None:
    """Train all trials that are not trained yet; the state is saved after each, so that a killed tuning can continue.

    Args:
        tuning: what is planned and done.
        recipe: the file of its recipe.
        config: of the recipe.
        report: called with each line for the user.
    """
    with locked(tuning.folder):
        for number, each in enumerate(tuning.rounds):
            entering = tuning.entering(number)
            report(f"round {number + 1} of {len(tuning.rounds)}: {counted(len(entering), 'trial')} of {each}")
            for index in entering:
                if index >= len(tuning.trials):
                    break  # left out
                trial = tuning.trials[index]
                if len(trial.scores) > number or trial.failure:
                    continue
                began = time.monotonic()
                folder = tuning.folder / TRIALS / f"{index:02d}"
                train_trial(trial, folder, recipe, config, each, tuning.metric)
                seconds = time.monotonic() - began
                trial.seconds.append(round(seconds, 1))
                result = trial.failure or f"{tuning.metric} {trial.scores[-1]:.4g} after {trial.updates[-1]:,} updates"
                report(f"  {index:02d}  {result}  ({seconds:.0f} s)  {tuning.describe(index)}")
                if tuning.minutes and number == 0:
                    _plan_again(tuning, report)
                tuning.save()
