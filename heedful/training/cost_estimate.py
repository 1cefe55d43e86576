"""Estimates of the cost of a training, from a few updates of a throwaway model on a batch of each shape."""

import collections
import gc
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import keras
import numpy as np

from heedful import backend
from heedful.core.errors import InputError
from heedful.data.examples import Examples
from heedful.runs.run import Run
from heedful.training.machine import memory_limit, peak_memory
from heedful.training.objective import Objective, training_objective, with_update_tokens

TIMED = 2  # batches of each shape, after a first one that includes compilation
LOOKED_AT = 1000  # batches examined for the frequency of each shape and its tokens
FIRST, LARGEST = 1024, 2**20  # batch sizes in tokens: the first one tried, and the largest one returned
TRIAL_FACTOR = 4  # factor between the batch sizes of successive trials
ROOM = 0.7  # share of the memory to fill: estimates are inexact, and validation needs memory too
MIN_MEMORY_GROWTH = 2**28  # bytes; a smaller difference between two trials is noise


@dataclass(frozen=True)
class CostEstimate:
    """The estimated cost of a training.

    Args:
        compiling: seconds to compile all shapes, once.
        epoch: seconds per epoch.
        rate: tokens per second without padding; target tokens where there is a source.
        memory: peak memory of the process or the accelerator, in bytes.
    """

    compiling: float
    epoch: float
    rate: float
    memory: int

    def __str__(self) -> str:
        epoch = f"{self.epoch:.3g} s" if self.epoch < 600 else f"{self.epoch / 60:.0f} min"
        return (
            f"compiling {self.compiling:.0f} s once, then {epoch} an epoch ({self.rate:,.0f} tokens/s), "
            f"{self.memory / 2**30:.2f} of {memory_limit() / 2**30:.1f} GiB of memory"
        )


def estimate_cost(run: Run, model: keras.Model, examples: Examples) -> "CostEstimate":
    """Train on one batch of each shape for a few updates; return the `CostEstimate`.

    Args:
        run: a `Run`; its config says how to train.
        model: fresh from `run.build_model()`; it must not be used afterwards.
        examples: the training examples, as for a `Trainer`.
    """
    shape_counts = _count_shapes(examples)
    count = shape_counts.total()
    firsts = examples.first_of_each_shape()  # some shapes do not occur in every epoch
    accumulate = run.config.train.accumulate_batches
    steps = max(1 + TIMED, 2 * accumulate)  # includes a whole update
    seconds = _seconds(run, model, list(map(examples.batch, firsts)), steps)
    batch_seconds = [statistics.fmean(each[accumulate:]) for each in seconds]
    whole = sum(each * shape_counts[examples.shape(first)] for each, first in zip(batch_seconds, firsts, strict=True))
    gc.collect()  # a model in training is part of reference cycles
    return CostEstimate(
        compiling=max(0.0, sum(each[0] for each in seconds) - sum(batch_seconds)),
        epoch=whole / count * examples.batches_per_epoch,
        rate=sum(map(examples.tokens, range(count))) / whole,
        memory=peak_memory(),
    )


def update_costs(run: Run, model: keras.Model, examples: Examples, timed: int) -> tuple[float, float]:
    """Time updates on the most frequent batch shape; assume that the others cost the same per position.

    Args:
        run, model, examples: as for `estimate_cost`.
        timed: minimum number of timed batches.

    Returns:
        Seconds per update, and seconds that compiling still takes in a training that follows in this process.
    """
    shape_counts, accumulate = _count_shapes(examples), run.config.train.accumulate_batches
    (usual_shape, _), *_ = shape_counts.most_common(1)
    batch = examples.batch(
        next(number for number in range(shape_counts.total()) if examples.shape(number) == usual_shape)
    )
    [seconds] = _seconds(run, model, [batch], max(1 + timed, 2 * accumulate))
    whole_updates = seconds[accumulate : len(seconds) // accumulate * accumulate]
    # The median, since other programs may interrupt an update.
    timed_batch = float(np.median(np.reshape(whole_updates, (-1, accumulate)).mean(axis=1)))
    mean_places = sum(_places(shape) * times for shape, times in shape_counts.items()) / shape_counts.total()
    gc.collect()
    update = accumulate * timed_batch * mean_places / _places(usual_shape)
    compiled_anew = len(shape_counts) - backend.keeps_compilations()
    return update, compiled_anew * max(0.0, seconds[0] - timed_batch)


def _count_shapes(examples):
    """Return how often each shape occurs in the first batches."""
    count = max(1, min(LOOKED_AT, math.ceil(examples.batches_per_epoch)))
    return collections.Counter(map(examples.shape, range(count)))


def _places(shape):
    rows, *lengths = shape
    return rows * sum(lengths)


@dataclass(frozen=True)
class Trial:
    """The memory used by updates with one batch size.

    Args:
        tokens: of the largest batch, with padding; a single row may exceed the requested batch size.
        used: peak memory in bytes.
        limit: available memory in bytes.
        everything: whether a single batch held all text.
    """

    tokens: int
    used: int
    limit: int
    everything: bool


def largest_batch(attempt: "Callable[[int], Trial | None]") -> int:
    """Return the largest batch size in tokens that fits into memory, extrapolated from smaller batches.

    Args:
        attempt: function from a number of tokens to a `Trial`, or to None if the memory was too small.

    Raises:
        InputError: the memory is too small for the smallest batch.
    """
    tokens = FIRST
    first = attempt(tokens)
    if first is None:
        raise InputError(f"There is too little memory for batches of {FIRST:,} tokens.")
    trial = first
    limit = ROOM * first.limit
    while not trial.everything and tokens < LARGEST:
        if trial.tokens > first.tokens and trial.used - first.used > MIN_MEMORY_GROWTH:
            each = (trial.used - first.used) / (trial.tokens - first.tokens)
            if trial.used + each * (TRIAL_FACTOR - 1) * trial.tokens > limit / 2:  # close enough to extrapolate
                estimated = trial.tokens + (limit - trial.used) / each
                return max(FIRST, min(LARGEST, int(estimated) // FIRST * FIRST))
        following = attempt(tokens * TRIAL_FACTOR)
        if following is None:
            break
        tokens, trial = tokens * TRIAL_FACTOR, following
    return tokens


def _seconds(run, model, batches, steps):
    """Return, for each batch, the seconds that each of `steps` took."""
    objective = training_objective(model, run.config.train)
    queue = (batch for batch in itertools.chain(batches, itertools.repeat(batches[-1])) for _ in range(steps))
    return np.reshape(step_seconds(objective, queue, steps * len(batches)), (-1, steps)).tolist()


def step_seconds(objective: Objective, batches: Iterable[dict[str, np.ndarray]], count: int) -> list[float]:
    """Train on the first `count` of an endless stream of batches; return the seconds that each took (count,)."""
    prepared = (with_update_tokens([batch])[0] for batch in batches)
    first, clock = next(prepared), _Clock()
    data = backend.feed(itertools.chain([first], prepared), first)
    backend.distribute([*objective.variables, *objective.optimizer.variables])  # or the first shape compiles twice
    objective.fit(data, steps_per_epoch=count, epochs=1, verbose=0, shuffle=False, callbacks=[clock])
    backend.collect(objective.model.variables)
    return clock.seconds


class _Clock(keras.callbacks.Callback):
    """Records how long each batch took."""

    def __init__(self):
        super().__init__()
        self.seconds, self.since = [], time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        backend.finish(logs["loss"], self.since)
        now = time.monotonic()
        self.seconds.append(now - self.since)
        self.since = now
