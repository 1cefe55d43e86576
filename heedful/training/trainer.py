"""The training loop: fit, validate, log, save the exact state, stop and resume exactly."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from heedful import backend
from heedful.config import settings
from heedful.core.errors import InputError
from heedful.data.examples import Examples
from heedful.runs.run import Run
from heedful.runs.weights import weights_by_name
from heedful.training.checkpoints import Checkpoints
from heedful.training.clock import Clock
from heedful.training.loggers import Loggers
from heedful.training.meter import Meter
from heedful.training.monitor import Monitor
from heedful.training.pace import Pace
from heedful.training.progress_log import ProgressLog
from heedful.training.schedule import Schedule
from heedful.training.selection import Selection
from heedful.training.signals import Interrupted, Signals
from heedful.training.tensorboard import tensorboard_writer
from heedful.training.updates import Updates
from heedful.training.validator import Validator


@dataclasses.dataclass(frozen=True)
class Beginning:
    """What a training begins with. The names of its fields are keys in the states of all runs.

    Args:
        data: fingerprint of the training text; resuming requires the same text.
        valid: fingerprint of the validation text; the best weights are chosen anew if it has changed.
        base: fingerprint of the weights that all weights of the model were initialised with; empty: it is untrained.
        seconds: time used of `train.minutes` before the first update.
    """

    data: str
    valid: str
    base: str
    seconds: float


class Trainer:
    """Trains the model of a run, from the start or (after `restore`) from its last checkpoint.

    Args:
        run: a `Run`; its config says how to train.
        model: fresh from `run.build_model()`.
        examples: an `Examples`, such as `TranslationExamples`.
        validator: its scores include that of `train.select_by`.
        report: called with each line for the user.
        beginning: a `Beginning`.
        max_updates: largest number of updates if the schedule is to end within `train.minutes`; None: as planned.
    """

    def __init__(
        self,
        run: Run,
        model: keras.Model,
        examples: Examples,
        validator: Validator,
        report: Callable[[str], Any],
        beginning: Beginning,
        max_updates: int | None = None,
    ):
        self.run, self.model, self.examples = run, model, examples
        self.config = run.config.train
        self.validator, self.report = validator, report
        self.updates = Updates(model, examples, self.config, self.resuming)
        self.objective = self.updates.objective
        # A copy of constants: that of the optimizer has variables, which `fit` holds while it runs.
        self.schedule = Schedule.from_config(self.objective.schedule.get_config())
        self.checkpoints = Checkpoints(run, model, self.updates.saved_variables)
        self.selection = Selection(run, model, self.checkpoints, self._scores, report)
        self.update = 0
        self.progress: dict[str, Any] = {"update": 0, "best": None, "best_update": 0, "waited": 0}
        self.progress |= dataclasses.asdict(beginning) | self._settings_in_progress()
        self._validations: list[float] = []  # seconds of each in this session
        self._first_pace = Pace(self.config.updates, max(self.config.updates, max_updates or 0))
        self._set_pace(self._first_pace)

    @property
    def resuming(self) -> str:
        """The command that continues the training."""
        return backend.resume_command(self.run.path)

    def restore(self) -> None:
        """Continue from the newest intact state of the run, exactly: weights, optimizer, dropout seeds, data order."""
        self._restore(*self.run.checkpoints.read_last(self.report))
        with self.checkpoints.writing():
            self.run.log.forget_after(self.update)
            self.run.snapshots.forget_after(self.update)

    def _restore(self, arrays, progress):
        if progress["data"] != self.progress["data"]:
            raise InputError(
                f"The training text has changed since {self.run.path} was begun; resuming would not be exact. "
                "Restore the old text, or train a new run."
            )
        settings = self.config
        begun_with = progress.get("accumulate_batches", settings.accumulate_batches)
        if begun_with != settings.accumulate_batches:  # the optimizer counts batches
            raise InputError(
                f"{self.run.path} was begun with train.accumulate_batches = {begun_with} and must keep it."
            )
        if progress.get("select_by", settings.select_by) != settings.select_by:  # best is by another score
            progress = progress | {"best": None, "waited": 0}
        if progress.get("valid", self.progress["valid"]) != self.progress["valid"]:
            self.report("The validation text has changed: the best weights are chosen anew, by scores on the new text.")
            progress = progress | {"best": None, "waited": 0, "valid": self.progress["valid"]}
            if progress.pop("start", None):  # the scores of the model before its training, on the old text
                self.report("They are no longer compared with the model before the training (nor on general text).")
        if (before := _arrangement(progress)) != (now := _arrangement(self._settings_in_progress())):
            self.report(
                f"The run was trained on {before}, and is continued on {now}: the result is the same within rounding, "
                "but not to the last bit."
            )
        self.progress = progress | self._settings_in_progress()
        self.checkpoints.restore(arrays)
        saved = dict(progress.get("pace", {}))
        same_schedule = saved.pop("planned", None) == settings.updates and settings.is_paced
        self.progress.pop("pace", None)  # without minutes, the schedule has its own
        self._set_pace(Pace.from_saved(saved) if same_schedule else self._first_pace)
        self.updates.state_assigned = True
        self.update = self.progress["update"]

    def _set_pace(self, pace):
        """Set the pace of the schedule; it is kept with the state."""
        self.pace = pace
        if self.config.is_paced:
            self.progress["pace"] = dataclasses.asdict(pace) | {"planned": self.config.updates}
            self.updates.set_pace(pace)

    def _plan_again(self, meter, seconds, left):
        """Let the schedule end in time, at the speed of the last interval.

        Args:
            meter: the `Meter`, after that interval.
            seconds: of an update in it; None if it is not known.
            left: seconds of `train.minutes`.
        """
        if not self.config.is_paced or seconds is None or self.update >= self.pace.updates or left <= 0:
            return
        validation = min(self._validations[-2:])  # the first one may have compiled
        left -= validation if self.config.average > 1 else 0.0
        planned, every = self.config.updates, self.config.validate_every
        pace = self.pace.replanned(self.update, planned, left, seconds, validation, every)
        if pace.updates != self.pace.updates:
            self.report(
                f"planned {pace.updates:,} updates now (before: {self.pace.updates:,}): {seconds:.3g} s an update, "
                f"{validation:.3g} s a validation"
            )
            self._set_pace(pace)
            meter.expect(pace.updates)

    def _settings_in_progress(self):
        """Return the settings that a checkpoint depends on."""
        settings: dict[str, Any] = {name: getattr(self.config, name) for name in ("accumulate_batches", "select_by")}
        devices = backend.training_devices(self.config.devices)
        return settings | {"devices": devices, "processes": backend.process_count()}

    def verify(self) -> None:
        """Repeat the updates between the last two checkpoints, and compare; the model ends in the last state.

        Raises:
            InputError: there are not two checkpoints, or any bit differs.
            Interrupted: a signal came.
        """
        states = self.run.checkpoints.paths()
        if len(states) < 2:
            raise InputError(f"{self.run.path} has fewer than two training states: there is nothing to replay.")
        before, last = (self.run.checkpoints.read(path) for path in states[-2:])
        if (then := _arrangement(last[1])) != (now := _arrangement(self._settings_in_progress())):
            raise InputError(
                f"The last updates of {self.run.path} were computed on {then}, and would be repeated on {now}: only "
                "the same arrangement gives the same bits."
            )
        self._restore(*before)
        first, goal, meter = self.update, last[1]["update"], Meter(self.model, self.examples, self.config)
        with Signals() as signals, meter.shown(self.update):
            self._fit(goal, meter, signals, lambda: math.inf)
        if signals.asked is not None:
            raise Interrupted(signals.asked, "Stopped while replaying; nothing was changed.")
        replayed = self.checkpoints.arrays()
        differences = {name: _difference(replayed[name], array) for name, array in last[0].items()}
        worst = max(differences, key=lambda name: differences[name])
        if differences[worst]:
            raise InputError(
                f"Replaying updates {first + 1} to {goal} gave a different result: {worst} differs by "
                f"{differences[worst]:.3g}. The machine, its number of cores, a library or an environment variable "
                "has changed, or a GPU sums in varying order; continue without --verify if that is fine."
            )
        self.report(f"replayed updates {first + 1} to {goal}: {len(last[0])} variables, all identical to the last bit")
        self._restore(*last)

    def train(self) -> None:
        """Train for the configured number of updates, and save the best weights to the run folder.

        Raises:
            Interrupted: a signal came; the state is saved.
            InputError: the loss is no longer finite, or the state cannot be saved.
        """
        config, meter = self.config, Meter(self.model, self.examples, self.config)
        loggers = Loggers(config.loggers, self.run.path, settings.flat(self.run.config), self.report)
        board = tensorboard_writer(self.run.path / "tensorboard") if config.tensorboard else None
        opened = contextlib.closing(board) if board else contextlib.nullcontext()
        with Signals() as signals, meter.shown(self.update), opened, contextlib.closing(loggers):
            self.run.log.listeners = [loggers.record]
            clock = self._clock = Clock(config, self.progress, meter)
            log = ProgressLog(self.run.log, self.objective, self._learning_rate, clock.started)
            self.checkpoints.warn_if_disk_is_low(self.report)
            if not self.run.checkpoints.paths():
                self.checkpoints.save(self.progress)  # from here on the training can be resumed
                self._save_snapshot()
            if self.progress.get("base") and not self.update and "start" not in self.progress:
                self.selection.begin(self.progress)
                self.checkpoints.save(self.progress)
            meter.expect(self.pace.updates)
            while not self.ended and clock.seconds_left() > 0:
                goal = min(self.pace.updates, (self.update // config.validate_every + 1) * config.validate_every)
                first, began = self.update + 1, time.monotonic()
                logs = {"first_update": first} | self._fit(goal, meter, signals, clock.seconds_left, log)
                fitted = time.monotonic()
                self.progress |= clock.spent()
                if signals.asked is None or self.update == goal:  # once resumed, this goal would be skipped
                    seconds = meter.seconds_of_update(self.update - first + 1, fitted - began)
                    self._validate(logs, meter, board)
                    self._plan_again(meter, seconds, clock.seconds_left())
                self.progress |= {"update": self.update} | clock.spent()
                self.checkpoints.save(self.progress)
                if signals.asked is not None:
                    raise Interrupted(
                        signals.asked,
                        f"Stopped at update {self.update}; the state is saved. Continue with: {self.resuming}",
                    )
        if self._lost_patience and self.update < self.pace.updates:
            self.report(f"No better {config.select_by} in {config.patience} validations: stopping early.")
        if not self.ended:
            ended = f"at update {self.update:,} of {self.pace.updates:,}"
            if config.schedule_ends:
                ended += f"; the learning rate was still {self._learning_rate(self.update):.3g}"
            self.report(f"Stopped after {config.minutes:g} minutes (train.minutes), {ended}.")
        if meter.counted:
            self.report(f"updates: {meter.summary()}")
        self.selection.finish(self.progress)

    def save_between(self, update: int) -> None:
        """Save the state after an update between two validations; it does not count among those to keep."""
        self.checkpoints.save(self.progress | {"update": update} | self._clock.spent())

    def _fit(self, goal, meter, signals, seconds_left, log=None):
        """Run updates from the current one to `goal`, or until stopped; return their mean metrics."""
        monitor = Monitor(self, goal, meter, signals, seconds_left, log)
        if log:
            log.begin()
        logs = self.updates.run(self.update, goal, monitor, wish=monitor.should_stop, watched=meter.watched)
        self.update = self.updates.done
        if not self.config.label_smoothing and self.config.consistency == "none":
            del logs["smoothed_loss"]  # equals the loss
        if monitor.diverged:
            raise self._diverged(monitor.diverged)
        return logs

    def _diverged(self, update):
        return InputError(
            f"The loss is no longer finite at update {update}. "
            f"The state of update {self.run.checkpoints.last_update()} is kept: lower train.learning_rate, lengthen "
            "train.warmup_updates or set train.clip_norm, and start again."
        )

    def _validate(self, logs, meter, board):
        began = time.monotonic()
        with self.updates.averaged_weights():
            scores = self._scores()
            samples = self.validator.samples()
            verdict = self.selection.consider(scores, self.progress)
        if verdict == "best":
            self.progress["best_update"] = self.update
        entry = {"update": self.update} | logs | {f"valid_{name}": score for name, score in scores.items()}
        entry |= meter.figures() | {
            "learning_rate": self._learning_rate(self.update),
            "seconds": round(self.progress["seconds"], 2),
            "validation_seconds": round(time.monotonic() - began, 2),
        }
        self._validations.append(time.monotonic() - began)
        with self.checkpoints.writing():
            self.run.log.append(entry)
            self.run.log.append_samples(self.update, samples)
        self._save_snapshot()
        if board:
            board.write(self.update, {name: value for name, value in entry.items() if name != "update"})
        self.report(
            f"update {self.update:6d}  loss {logs['loss']:.3f}  "
            + "  ".join(f"valid {name} {score:.4g}" for name, score in scores.items())
            + f"  {meter.rate:,.0f} tokens/s"
            + (f"  {verdict}" if verdict else "")
        )
        for sample in samples:
            self.report(f"    {sample.line}")
        meter.restart()

    def _save_snapshot(self):
        """Save a snapshot if the config asks for them, and one is due."""
        validation, rest = divmod(self.update, self.config.validate_every)
        if self.config.snapshots and not rest and self.run.snapshots.due(validation):
            weights = weights_by_name(self.model)
            with self.checkpoints.writing():
                self.run.snapshots.save(self.update, weights)

    def _learning_rate(self, update):
        """Return the learning rate of an update."""
        position = np.float32(self.pace.position_of(update))
        return float(backend.to_numpy(self.schedule.rate_at(keras.ops.convert_to_tensor(position))))

    def _scores(self):
        """Validate and return the scores; raise `InputError` if that of `train.select_by` is not finite."""
        scores = self.validator()
        if not math.isfinite(scores[self.config.select_by]):
            raise self._diverged(self.update)
        return scores

    @property
    def ended(self) -> bool:
        """Whether the training has come to its end, by its schedule or for lack of progress, not by the clock."""
        return self.update >= self.pace.updates or self._lost_patience

    @property
    def _lost_patience(self):
        return bool(self.config.patience) and self.progress["waited"] >= self.config.patience


def _arrangement(progress):
    """Return the devices and processes of a checkpoint's progress, in words."""
    devices, processes = progress.get("devices", 1), progress.get("processes", 1)
    words = "one device" if devices == 1 else f"{devices} devices"
    return words if processes == 1 else f"{words} of {processes} processes"


def _difference(one, other):
    """Return the largest difference of two arrays; 0 only if they are bit-identical."""
    if one.dtype == other.dtype and one.tobytes() == other.tobytes():
        return 0.0
    largest = float(np.nan_to_num(np.abs(one.astype(np.float64) - other), nan=np.inf).max())
    return largest or math.ulp(0.0)  # 0 and -0
