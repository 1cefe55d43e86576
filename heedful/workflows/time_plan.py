"""Plan how many updates fit into `train.minutes`, so that the learning rate schedule ends in time."""

import dataclasses
import itertools
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

from heedful.config import Config
from heedful.core.errors import InputError, counted
from heedful.training.cost_estimate import update_costs
from heedful.training.pace import SHARE, updates_within

TIMED = 12  # batches
FEWEST = 10  # updates that are worth a training
REPEATED = 0.05  # a validation that takes less than this share of the minutes is timed twice


def fit_into_minutes(training: Any) -> Config:
    """Return the config of a training with as many updates as fit into `train.minutes`, but no more than it asks for.

    Updates and validations are timed on a throwaway model, and this time counts towards the minutes. A warm-up longer
    than half of the updates is shortened to half.

    Args:
        training: a `Training` whose schedule has an end (`TrainConfig.schedule_ends`).

    Raises:
        InputError: hardly any update fits.
    """
    began = time.monotonic()
    train, model = training.config.train, training.fresh_model()
    update, compiling = update_costs(training.run, model, training.examples, TIMED)
    validation = _validation_seconds(training.validator(model), REPEATED * 60 * train.minutes)
    spent = time.monotonic() - began + compiling + (validation if train.average > 1 else 0.0)
    spent += validation if train.init_from else 0.0  # before the first update
    fitting = updates_within(SHARE * 60 * train.minutes - spent, update, validation, train.validate_every)
    updates = min(train.updates, fitting)
    if updates < min(FEWEST, train.updates):
        raise InputError(
            f"train.minutes = {train.minutes:g} has room for {counted(updates, 'update')} only: measuring and "
            f"compiling take {spent:.0f} s, an update {update:.3g} s, a validation {validation:.3g} s. Give it more "
            "minutes, smaller batches (data.batch_tokens) or fewer validation sentences (train.validate_sentences)."
        )
    training.report(
        f"planned {updates:,} of at most {train.updates:,} updates for {train.minutes:g} minutes: {update:.3g} s "
        f"an update, {validation:.3g} s a validation"
    )
    warmup = min(train.warmup_updates, max(updates // 2, 1))
    if warmup < train.warmup_updates:
        training.report(f"the warm-up of {train.warmup_updates:,} updates is shortened to {warmup:,}")
    # A resumed run would count the updates of its epochs again.
    planned = dataclasses.replace(train, updates=updates, warmup_updates=warmup, epochs=0.0)
    return dataclasses.replace(training.config, train=planned)


def continued_within_minutes(config: Config, log: Sequence[Mapping[str, Any]]) -> Config:
    """Return a config with as many updates as fit into its minutes, at the speed of the training so far.

    Args:
        config: has other minutes than the run was planned for.
        log: entries of the run's log, at least one.
    """
    last = log[-1]
    # Updates with their validations, without the compilation at the beginning of each session.
    spans = [
        (after["seconds"] - before["seconds"] - after.get("compile_seconds", 0.0), after["update"] - before["update"])
        for before, after in itertools.pairwise(log)
    ] or [(last["seconds"] - last.get("compile_seconds", 0.0), last["update"])]
    rates = [updates / seconds for seconds, updates in spans if seconds > 0 and updates > 0]
    compiling = max(entry.get("compile_seconds", 0.0) for entry in log)  # this session compiles again
    left = 60 * config.train.minutes - last["seconds"] - last.get("validation_seconds", 0.0) - compiling
    added = math.floor(SHARE * max(left, 0.0) * statistics.median(rates)) if rates else 0
    train = dataclasses.replace(config.train, updates=last["update"] + added)
    return dataclasses.replace(config, train=train)


def _validation_seconds(validator, repeated):
    """Return how long a validation with its samples takes once it is compiled.

    It is timed twice if the first time is below `repeated` seconds, and the shorter time counts.
    """

    def timed():
        began = time.monotonic()
        validator()
        validator.samples()
        return time.monotonic() - began

    timed()  # compiles
    first = timed()
    return min(first, timed()) if first < repeated else first
