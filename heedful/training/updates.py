"""Runs of updates: the same in every process that trains, each on its own devices."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np

from heedful import backend
from heedful.config import TrainConfig
from heedful.core.errors import InputError
from heedful.data.examples import Examples
from heedful.training.ahead import prepared_ahead
from heedful.training.objective import REPLICATED, training_objective, with_update_tokens
from heedful.training.optimizer import averaged_weights
from heedful.training.pace import Pace
from heedful.training.watchdog import Watchdog

UPDATES_IN_FLIGHT = 8  # updates between two times that the host waits for an accelerator


class Updates:
    """Trains a model for some updates at a time, with `fit`.

    Where several processes train, process 0 calls `run`, and the others `follow`. They begin with the same state, that
    of process 0, and get the same gradients, so their states stay the same.

    Args:
        model: the model to train.
        examples: the training examples; the same batches in every process.
        config: a `TrainConfig`.
        resume: the command that continues the training, for messages.
    """

    def __init__(self, model: keras.Model, examples: Examples, config: TrainConfig, resume: str = ""):
        self.model, self.examples, self.config, self.resume = model, examples, config, resume
        self.objective = training_objective(model, config)
        self.optimizer = self.objective.optimizer
        of_schedule = {id(variable) for variable in self.objective.schedule.variables.values()}
        self.saved_variables = [each for each in self.optimizer.variables if id(each) not in of_schedule]
        """Those of the optimizer that belong to the state of a training; its pace is saved as numbers."""
        self._last_batch = 0  # batch of the current run
        self.state_assigned = True  # since the last updates; the other processes do not have it yet
        require_rows(examples, config)

    @property
    def saves_after_runs_only(self) -> bool:
        """Whether no process has the whole state during a run, since several share it."""
        return self.config.shard and backend.process_count() > 1

    @property
    def done(self) -> int:
        """Number of updates of the current state."""
        return int(backend.to_numpy(self.optimizer.iterations))

    def set_pace(self, pace: Pace) -> None:
        """Change the pace of the schedule; other processes get it before their next updates."""
        self.objective.schedule.set_pace(pace)
        self.state_assigned = True

    @contextlib.contextmanager
    def averaged_weights(self) -> Iterator[None]:
        """Give the model the moving average of its weights in this context, if the optimizer keeps one."""
        pairs = averaged_weights(self.optimizer)
        weights = [backend.to_numpy(weight) for weight, _ in pairs]
        for weight, average in pairs:
            weight.assign(backend.to_numpy(average))
        try:
            yield
        finally:
            for (weight, _), before in zip(pairs, weights, strict=True):
                weight.assign(before)

    def run(
        self, first: int, goal: int, callback: keras.callbacks.Callback, *, wish: Callable[[], bool] = bool,
        watched: Callable[[Iterator], Iterable] = iter,
    ) -> dict[str, float]:  # fmt: skip
        """Run updates `first` + 1 to `goal` in all processes; return the mean metrics.

        Args:
            first, goal: numbers of updates.
            callback: called after each batch; it may end the run after an update.
            wish: whether to end the run; where several processes train, `ends` tells them all.
            watched: passes the batches on.
        """
        with self._watchdog() as watchdog, backend.abandoned_on_error(self.resume):
            backend.exchange({"run": {"first": first, "goal": goal, "assigned": self.state_assigned}})
            return self._run(first, goal, self.state_assigned, [callback, watchdog], wish, watched)

    def follow(self, order: dict[str, Any], wish: Callable[[], bool]) -> None:
        """Run the updates that process 0 runs, in another process; `order` is what `run` sends."""
        with self._watchdog() as watchdog:
            callbacks = [_Following(self, order["first"]), watchdog]
            self._run(order["first"], order["goal"], order["assigned"], callbacks, wish, iter)

    def _watchdog(self):
        seconds = 60 * self.config.stall_minutes if backend.process_count() > 1 else 0
        return Watchdog(seconds, f"{backend.process_count()} processes", self.resume)

    def ends(self, logs: dict[str, Any], wish: bool) -> bool:
        """Return whether the run ends after an update: because of a loss that is not finite, or of a wish."""
        return not np.isfinite(logs["loss"]) or bool(logs.get(backend.STOP_WISHES, wish))

    def runs_ahead_after(self, number: int) -> bool:
        """Return whether the next batch is dispatched before the device has finished the first `number` batches.

        On a CPU each batch is awaited. On an accelerator, every `UPDATES_IN_FLIGHT` updates and the last batch are.
        """
        waits = UPDATES_IN_FLIGHT * self.config.accumulate_batches if backend.runs_ahead() else 1
        return number % waits != 0 and number != self._last_batch

    def _run(self, first, goal, assigned, callbacks, wish, watched):
        variables = [*self.objective.variables, *self.optimizer.variables]
        if assigned and backend.process_count() > 1:
            self._receive(variables)
        self._last_batch = goal * self.config.accumulate_batches
        example = self.examples.batch(0) | {"update_tokens": np.ones(1, np.float32)}
        with backend.using_devices(self.config.devices, processes=True, shard=self.config.shard):
            backend.distribute(variables)
            batches = (backend.distribute_batch(one, REPLICATED, wish()) for one in watched(self._batches(first)))
            ahead: contextlib.AbstractContextManager[Any] = contextlib.nullcontext(batches)
            if backend.runs_ahead():
                ahead = contextlib.closing(prepared_ahead(batches))
            with ahead as batches:
                history = self.objective.fit(
                    backend.feed(batches, example), steps_per_epoch=(goal - first) * self.config.accumulate_batches,
                    epochs=1, verbose=0, shuffle=False, callbacks=self._callbacks(callbacks),
                )  # fmt: skip
            if self.saves_after_runs_only:
                backend.collect(variables)
        backend.collect(self.model.variables)
        self.state_assigned = False
        return {name: float(values[-1]) for name, values in history.history.items() if name != backend.STOP_WISHES}

    def _callbacks(self, callbacks):
        """Return callbacks for `fit`; where the host goes ahead of the device, they get arrays and need not wait."""
        return _ArraysPassedOn(callbacks, add_history=True, model=self.objective) if backend.runs_ahead() else callbacks

    def _receive(self, variables):
        """Assign the state of process 0 in the other processes."""
        backend.collect(variables)
        values = backend.from_first([backend.to_numpy(variable) for variable in variables])
        if backend.process_index():
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)

    def _batches(self, update):
        per_update = self.config.accumulate_batches
        while True:
            batches = [self.examples.batch(update * per_update + index) for index in range(per_update)]
            yield from with_update_tokens(batches)
            update += 1


def require_rows(examples: Examples, config: TrainConfig) -> None:
    """Raise `InputError` if the batches have too few rows for the devices that were asked for, or cannot be shared."""
    devices = backend.training_devices(config.devices)
    rows = max((examples.shape(number)[0] for number in examples.first_of_each_shape()), default=1)
    if devices > rows and (config.devices or backend.process_count() > 1):
        raise InputError(
            f"The largest batch has {rows} row{'s' * (rows > 1)}, too few for {devices} devices: use fewer "
            "(--train.devices, --processes), or larger batches."
        )


class _ArraysPassedOn(keras.callbacks.CallbackList):
    """Calls callbacks with the metrics of a batch as arrays: Keras' own list waits for the device to convert them."""

    def on_train_batch_end(self, batch, logs=None):
        for callback in self.callbacks:
            callback.on_train_batch_end(batch, logs)


class _Following(keras.callbacks.Callback):
    """Ends the updates in a process that follows process 0, when they end there."""

    def __init__(self, updates: Updates, first: int):
        super().__init__()
        self.updates, self.per_update = updates, updates.config.accumulate_batches
        self.number = first * self.per_update

    def on_train_batch_end(self, batch, logs=None):
        self.number += 1
        if self.updates.runs_ahead_after(self.number):
            return
        float(logs["loss"])  # waits for the update
        if self.number % self.per_update == 0 and self.updates.ends(logs, False):
            self.model.stop_training = True
