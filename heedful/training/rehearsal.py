"""What a training will cost, learned by trying: some updates on a batch of each shape, the model then thrown away."""

import collections
import gc
import itertools
import math
import statistics
import time
from dataclasses import dataclass

import keras
import numpy as np

from heedful import backend
from heedful.errors import InputError
from heedful.training.machine import memory_limit, peak_memory
from heedful.training.objective import Objective
from heedful.training.optimizer import training_optimizer, training_schedule

TIMED = 2  # batches of each shape, after a first one that is compiled for
LOOKED_AT = 1000  # batches that tell how often each shape comes, and how many tokens it holds
FIRST, LARGEST = 1024, 2**20  # batch sizes, in tokens: the first that is tried, and the largest that is given
STEP = 4  # times as many at the next trial
ROOM = 0.7  # share of the memory that batches are made to fill: estimates err, and validation needs some too
GROWTH = 2**28  # bytes by which a larger batch must have raised the memory: below, the price of a token is noise


@dataclass(frozen=True)
class Rehearsal:
    """What a training was found to cost.

    Args:
        compiling: seconds, once, for all shapes.
        epoch: seconds in which every text comes once.
        rate: real tokens learned from in a second, of the target where there is a source.
        memory: bytes that the process, or the accelerator, has used at most.
    """

    compiling: float
    epoch: float
    rate: float
    memory: int

    def __str__(self):
        epoch = f"{self.epoch:.3g} s" if self.epoch < 600 else f"{self.epoch / 60:.0f} min"
        return (
            f"compiling {self.compiling:.0f} s once, then {epoch} an epoch ({self.rate:,.0f} tokens/s), "
            f"{self.memory / 2**30:.2f} of {memory_limit() / 2**30:.1f} GiB of memory"
        )


def rehearse(run, model, examples):
    """Train on one batch of each shape for a few updates; return the `Rehearsal`.

    Args:
        run: a `Run`; its config says how to train.
        model: fresh from `run.build_model()`; it is worth nothing afterwards.
        examples: what to learn from, as for a `Trainer`.
    """
    often = _shapes(examples)
    count = often.total()
    firsts = examples.first_of_each_shape()  # some shapes do not come in every epoch
    accumulate = run.config.train.accumulate
    steps = max(1 + TIMED, 2 * accumulate)  # a whole update among them
    seconds = _seconds(run, model, list(map(examples.batch, firsts)), steps)
    usual = [statistics.fmean(each[accumulate:]) for each in seconds]
    whole = sum(each * often[examples.shape(first)] for each, first in zip(usual, firsts, strict=True))
    gc.collect()  # a model in training lies in circles of references
    return Rehearsal(
        compiling=max(0.0, sum(each[0] for each in seconds) - sum(usual)),
        epoch=whole / count * examples.batches_per_epoch,
        rate=sum(map(examples.tokens, range(count))) / whole,
        memory=peak_memory(),
    )


def update_costs(run, model, examples, timed):
    """Time updates on the most frequent shape of batches; the others cost as much for each place that they have.

    Args:
        run, model, examples: as of `rehearse`.
        timed: batches that are timed, at least.

    Returns:
        Seconds of an update, and seconds of compiling for all shapes.
    """
    often, accumulate = _shapes(examples), run.config.train.accumulate
    (usual, _), *_ = often.most_common(1)
    batch = examples.batch(next(number for number in range(often.total()) if examples.shape(number) == usual))
    [seconds] = _seconds(run, model, [batch], max(1 + timed, 2 * accumulate))
    timed_batch = statistics.fmean(seconds[accumulate:])
    mean_places = sum(_places(shape) * times for shape, times in often.items()) / often.total()
    gc.collect()
    return accumulate * timed_batch * mean_places / _places(usual), len(often) * max(0.0, seconds[0] - timed_batch)


def _shapes(examples):
    """Return how often each shape comes among the first batches."""
    count = max(1, min(LOOKED_AT, math.ceil(examples.batches_per_epoch)))
    return collections.Counter(map(examples.shape, range(count)))


def _places(shape):
    rows, *lengths = shape
    return rows * sum(lengths)


@dataclass(frozen=True)
class Trial:
    """What updates on batches of some size took.

    Args:
        tokens: of the largest batch, padding included; a row may have more than a batch was to have.
        used: bytes at most.
        limit: bytes there are.
        everything: whether a batch held all text.
    """

    tokens: int
    used: int
    limit: int
    everything: bool


def largest_batch(attempt):
    """Return how many tokens a batch can have that the memory holds, by what smaller batches take of it.

    Args:
        attempt: from a number of tokens to a `Trial`, or None where the memory was too small for that.

    Raises:
        InputError: it is too small for the least batch.
    """
    tokens = FIRST
    first = trial = attempt(tokens)
    if first is None:
        raise InputError(f"There is too little memory for batches of {FIRST:,} tokens.")
    limit = ROOM * first.limit
    while not trial.everything and tokens < LARGEST:
        if trial.tokens > first.tokens and trial.used - first.used > GROWTH:
            each = (trial.used - first.used) / (trial.tokens - first.tokens)
            if trial.used + each * (STEP - 1) * trial.tokens > limit / 2:  # near enough to tell
                most = trial.tokens + (limit - trial.used) / each
                return max(FIRST, min(LARGEST, int(most) // FIRST * FIRST))
        following = attempt(tokens * STEP)
        if following is None:
            break
        tokens, trial = tokens * STEP, following
    return tokens


def _seconds(run, model, batches, steps):
    """Return of each batch how many seconds each of `steps` took."""
    train = run.config.train
    objective = Objective(model, train.label_smoothing, train.accumulate)
    objective.compile(training_optimizer(train, training_schedule(train, run.config.model.d_model)))
    queue = (batch for batch in itertools.chain(batches, itertools.repeat(batches[-1])) for _ in range(steps))
    return np.reshape(step_seconds(objective, queue, steps * len(batches)), (-1, steps)).tolist()


def step_seconds(objective, batches, count):
    """Train on the first `count` of an endless stream of batches; return how many seconds each took (count,)."""
    prepared = (batch | {"update_tokens": np.array([max(1, batch["weights"].sum())], np.float32)} for batch in batches)
    first, clock = next(prepared), _Clock()
    data = backend.feed(itertools.chain([first], prepared), first)
    objective.fit(data, steps_per_epoch=count, epochs=1, verbose=0, shuffle=False, callbacks=[clock])
    return clock.seconds


class _Clock(keras.callbacks.Callback):
    """Notes how long each batch took."""

    def __init__(self):
        super().__init__()
        self.seconds, self.since = [], time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        backend.finish(logs["loss"], self.since)
        now = time.monotonic()
        self.seconds.append(now - self.since)
        self.since = now
