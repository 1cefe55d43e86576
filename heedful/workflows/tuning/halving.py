"""Successive halving: all trials train a little, and the best third of them continues (Jamieson and Talwalkar 2016)."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from heedful.config import Config
from heedful.core.errors import counted
from heedful.core.storage import locked
from heedful.workflows.tuning.planning import MIN_TRIALS, OVERHEAD, trials_within
from heedful.workflows.tuning.state import Tuning
from heedful.workflows.tuning.trials import train_trial

TRIALS = "trials"  # folder


def _overhead(tuning):
    """Return the minutes that a trial of the first round took besides its training, on average."""
    seconds = [trial.seconds[0] for trial in tuning.trials if trial.seconds and not trial.failure]
    return max(0.0, statistics.fmean(seconds) / 60 - tuning.rounds[0].minutes) if seconds else OVERHEAD


def _trials_that_fit(tuning, overhead, report):
    """Return how many trials fit into the minutes; not fewer than have begun, nor than a comparison needs."""
    begun = [index + 1 for index, trial in enumerate(tuning.trials) if trial.scores or trial.failure]
    count = trials_within(tuning.minutes, tuning.rounds, overhead)
    if len(begun) == MIN_TRIALS - 1 and count < MIN_TRIALS:
        report(f"  {MIN_TRIALS} trials, the fewest that are compared, take longer than {tuning.minutes:g} minutes")
    return max(MIN_TRIALS, *begun, count)


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
                if number == 0 and tuning.minutes:
                    overhead = _overhead(tuning)
                    if index >= _trials_that_fit(tuning, overhead, report):
                        report(f"  a trial takes {60 * overhead:.0f} s besides its training: no more than {index} fit")
                        del tuning.trials[index:]
                        tuning.save()
                        break
                trial = tuning.trials[index]
                if len(trial.scores) > number or trial.failure:
                    continue
                began = time.monotonic()
                folder = tuning.folder / TRIALS / f"{index:02d}"
                train_trial(trial, folder, recipe, config, each)
                seconds = time.monotonic() - began
                trial.seconds.append(round(seconds, 1))
                result = trial.failure or f"{each.metric} {trial.scores[-1]:.4g} after {trial.updates[-1]:,} updates"
                report(f"  {index:02d}  {result}  ({seconds:.0f} s)  {tuning.describe(index)}")
                tuning.save()
