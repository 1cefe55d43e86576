"""Training in updates: fit, validate, log, save the exact state, stop and resume without a trace."""

import contextlib
import math
import time

import keras
import numpy as np

from heedful import backend
from heedful.errors import InputError
from heedful.run import WEIGHTS, load_weights
from heedful.storage import read_sealed
from heedful.training.board import Board
from heedful.training.meter import Meter
from heedful.training.objective import Objective
from heedful.training.optimizer import training_optimizer, training_schedule
from heedful.training.signals import Interrupted, Signals
from heedful.training.states import States


class Trainer:
    """Fits a model of a run, from its last state on.

    Args:
        run: a `Run`; its config says how to train.
        model: fresh from `run.build_model()`.
        examples: what to learn from, such as `TranslationExamples`: has `batch(n)`, `tokens(n)` and `shape(n)`.
        validate: called with nothing, returns scores, the one that decides among them, and, under `samples`, texts
            to show.
        report: called with each line for the user.
        data_fingerprint: of the training text; a state is continued on the same text only.
        seconds_spent: of `train.minutes`, before the first update.
    """

    def __init__(self, run, model, examples, validate, report, data_fingerprint="", seconds_spent=0.0):
        self.run, self.model, self.examples = run, model, examples
        self.config = run.config.train
        self.validate, self.report = validate, report
        settings = self.config
        schedule = training_schedule(settings, run.config.model.d_model)
        self.objective = Objective(model, settings.label_smoothing, settings.accumulate)
        self.objective.compile(training_optimizer(settings, schedule))
        self.objective.optimizer.build(self.objective.trainable_variables)
        self.states = States(run, model, self.objective.optimizer)
        self.schedule = schedule
        self.update = 0
        self.progress = {"update": 0, "seconds": seconds_spent, "best": None, "best_update": 0, "waited": 0}
        self.progress |= {"data": data_fingerprint, "accumulate": settings.accumulate, "best_by": settings.best_by}

    def restore(self):
        """Continue from the newest whole state of the run, exactly: weights, optimizer, dropout seeds, data order."""
        self._restore(*self.run.last_state(self.report))
        self.states.write(lambda: self.run.forget_after(self.update))

    def _restore(self, arrays, progress):
        if progress["data"] != self.progress["data"]:
            raise InputError(
                f"The training text has changed since {self.run.path} was begun; resuming would not be exact. "
                "Bring the old text back, or train a new run."
            )
        settings = self.config
        if progress.get("accumulate", settings.accumulate) != settings.accumulate:  # the optimizer counts batches
            raise InputError(
                f"{self.run.path} was begun with train.accumulate = {progress['accumulate']}, which has to stay."
            )
        if progress.get("best_by", settings.best_by) != settings.best_by:  # what was best is no measure any more
            progress = progress | {"best": None, "waited": 0}
        self.progress = progress | {"accumulate": settings.accumulate, "best_by": settings.best_by}
        self.states.put(arrays)
        self.update = self.progress["update"]

    def verify(self):
        """Live through the updates between the last two states again, and compare; the model ends in the last state.

        Raises:
            InputError: there are no two states, or a single bit of the replay differs.
            Interrupted: a signal came.
        """
        states = self.run.states()
        if len(states) < 2:
            raise InputError(f"{self.run.path} has fewer than two training states: there is nothing to replay.")
        before, last = (self.run.read_state(path) for path in states[-2:])
        self._restore(*before)
        first, goal, meter = self.update, last[1]["update"], Meter(self.model, self.examples, self.config)
        with Signals() as signals, meter.shown(self.update):
            self._fit(goal, meter, signals, math.inf)
        if signals.received is not None:
            raise Interrupted(signals.received, "Stopped while replaying; nothing was changed.")
        replayed = self.states.arrays()
        differences = {name: _difference(replayed[name], array) for name, array in last[0].items()}
        worst = max(differences, key=lambda name: differences[name])
        if differences[worst]:
            raise InputError(
                f"The updates {first + 1} to {goal} do not come out as they did: {worst} differs by "
                f"{differences[worst]:.3g}. The machine, a library or an environment variable is not what it was, or a "
                "GPU adds in no fixed order; go on without --verify if that is meant."
            )
        self.report(f"replayed updates {first + 1} to {goal}: {len(last[0])} variables, all the same to the last bit")
        self._restore(*last)

    def train(self):
        """Train to the configured number of updates, and leave the best weights in the run folder.

        Raises:
            Interrupted: a signal came; the state is saved.
            InputError: the loss is not a number any more, or the state cannot be saved.
        """
        config, meter = self.config, Meter(self.model, self.examples, self.config)
        folder = self.run.path / "tensorboard"
        opened = contextlib.closing(Board(folder)) if config.tensorboard else contextlib.nullcontext()
        with Signals() as signals, meter.shown(self.update), opened as board:
            started = time.monotonic() - self.progress["seconds"]
            deadline = started + config.minutes * 60 if config.minutes else math.inf
            self.states.warn_of_little_room(self.report)
            if not self.run.states():
                self.states.save(self.progress)  # from here on there is always something to resume from
            while self.update < config.updates and not self._lost_patience() and time.monotonic() < deadline:
                goal = min(config.updates, (self.update // config.validate_every + 1) * config.validate_every)
                logs = self._fit(goal, meter, signals, deadline)
                self.progress["seconds"] = time.monotonic() - started
                if signals.received is None or self.update == goal:  # it would not be validated later
                    self._validate(logs, meter, board)
                self.progress |= {"update": self.update, "seconds": time.monotonic() - started}
                self.states.save(self.progress)
                if signals.received is not None:
                    raise Interrupted(
                        signals.received,
                        f"Stopped at update {self.update}; the state is saved. "
                        f"Go on with: heedful train --resume {self.run.path}",
                    )
        if self.update < config.updates and time.monotonic() >= deadline:
            ended = f"at update {self.update:,} of {config.updates:,}"
            rate = f"; the learning rate was still {self._learning_rate():.3g}" if config.schedule_ends else ""
            self.report(f"Stopped after {config.minutes:g} minutes (train.minutes), {ended}{rate}.")
        if meter.counted:
            self.report(f"updates: {meter.summary()}")
        self._finish()

    def _fit(self, goal, meter, signals, deadline):
        """Run `fit` from the current update to `goal`, or until it is stopped; return the means of its logs."""
        per_update = self.config.accumulate
        first = self.update
        watch = _Watch(self, meter, signals, deadline)
        example = self.examples.batch(0) | {"update_tokens": np.ones(1, np.float32)}
        data = backend.feed(meter.watched(self._batches(first)), example)
        history = self.objective.fit(
            data, steps_per_epoch=(goal - first) * per_update, epochs=1, verbose=0, shuffle=False, callbacks=[watch]
        )
        self.update = int(backend.to_numpy(self.objective.optimizer.iterations))
        logs = {name: float(values[-1]) for name, values in history.history.items()}
        if not self.config.label_smoothing:
            del logs["smoothed_loss"]  # it is the loss
        if watch.diverged:
            raise self._diverged(watch.diverged)
        return logs

    def _diverged(self, update):
        return InputError(
            f"The loss is not a number any more at update {update}. "
            f"The state of update {self.progress['update']} is kept: lower train.learning_rate, lengthen "
            "train.warmup_updates or set train.clip_norm, and start again."
        )

    def _batches(self, update):
        per_update = self.config.accumulate
        while True:
            batches = [self.examples.batch(update * per_update + index) for index in range(per_update)]
            tokens = np.array([max(1, sum(batch["weights"].sum() for batch in batches))], np.float32)
            yield from (batch | {"update_tokens": tokens} for batch in batches)
            update += 1

    def _validate(self, logs, meter, board):
        began = time.monotonic()
        by, scores = self.config.best_by, self._scores()
        samples = scores.pop("samples", [])
        better = self.progress["best"] is None or (
            scores[by] < self.progress["best"] if by == "loss" else scores[by] > self.progress["best"]
        )
        if better:
            self.progress |= {"best": scores[by], "best_update": self.update, "waited": 0}
            self.states.write(lambda: self.run.save_model(model=self.model))
        else:
            self.progress["waited"] += 1
        entry = {"update": self.update} | logs | {f"valid_{name}": score for name, score in scores.items()}
        entry |= meter.figures() | {
            "learning_rate": self._learning_rate(),
            "seconds": round(self.progress["seconds"], 2),
            "validation_seconds": round(time.monotonic() - began, 2),
        }
        self.states.write(lambda: self.run.append_log(entry))
        self.states.write(lambda: self.run.append_samples(self.update, samples))
        if board:
            board.write(self.update, {name: value for name, value in entry.items() if name != "update"})
        self.report(
            f"update {self.update:6d}  loss {logs['loss']:.3f}  "
            + "  ".join(f"valid {name} {score:.4g}" for name, score in scores.items())
            + f"  {meter.rate:,.0f} tokens/s"
            + ("  best" if better else "")
        )
        for sample in samples:
            self.report(f"    {sample}")
        meter.restart()

    def _learning_rate(self):
        """Return the learning rate of the last update."""
        return float(backend.to_numpy(self.schedule((self.update - 1) * self.config.accumulate)))

    def _scores(self):
        """Return what the validation says; no other score would be better than one that is no number."""
        scores = dict(self.validate())
        if not math.isfinite(scores[self.config.best_by]):
            raise self._diverged(self.update)
        return scores

    def _lost_patience(self):
        lost = bool(self.config.patience) and self.progress["waited"] >= self.config.patience
        if lost:
            self.report(f"No better {self.config.best_by} in {self.config.patience} validations: stopping early.")
        return lost

    def _finish(self):
        """Choose between the best single state and the average of the last ones."""
        arrays = self.states.arrays()  # the model is made to hold others below
        if self.progress["best"] is None:
            self._score_once(arrays)
        states = [state for state in self.run.states() if int(state.stem)]  # not the one that has learned nothing
        states = states[-self.config.average :] if self.config.average > 1 else []
        if states:
            best = self.progress["best"]
            average = self.states.average(states)
            load_weights(self.model, average, "the average of the last states")
            scores = self.validate()
            by = self.config.best_by
            wins = scores[by] <= best if by == "loss" else scores[by] >= best
            self.report(
                f"average of the last {len(states)} states: valid {by} {scores[by]:.4g} "
                f"(best single state {best:.4g}): {'kept' if wins else 'not kept'}"
            )
            if wins:
                self.states.write(lambda: self.run.save_model(average))
                self.progress["best"] = scores[by]  # or, going on, a state that is worse could take its place
                self.states.save(self.progress, arrays)

    def _score_once(self, arrays):
        """Score the weights in the run folder where no validation has, as the state of the last update is `arrays`.

        They are there if the training had ended and goes by another measure now; else it stopped before its first
        validation, and the last update's are the best.
        """
        path = self.run.path / WEIGHTS
        if path.is_file():
            load_weights(self.model, read_sealed(path)[0], path)
        else:
            self.states.write(lambda: self.run.save_model(model=self.model))
            self.progress["best_update"] = self.update
        self.progress["best"] = self._scores()[self.config.best_by]
        self.states.save(self.progress, arrays)


def _difference(one, other):
    """Return the largest difference of two arrays; 0 only if they are the same bit for bit."""
    if one.dtype == other.dtype and one.tobytes() == other.tobytes():
        return 0.0
    largest = float(np.nan_to_num(np.abs(one.astype(np.float64) - other), nan=np.inf).max())
    return largest or math.ulp(0.0)  # 0 and -0


class _Watch(keras.callbacks.Callback):
    """Meters every batch of a `fit`, and stops it at an update's end: on a signal, at the deadline, on NaN."""

    def __init__(self, trainer, meter, signals, deadline):
        super().__init__()
        self.trainer, self.meter, self.signals, self.deadline = trainer, meter, signals, deadline
        self.number = trainer.update * trainer.config.accumulate
        self.diverged = None
        self.since = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        loss = backend.finish(logs["loss"], self.since)  # so that times are those of the work
        now = time.monotonic()
        self.meter.count(self.number, now - self.since)
        self.since = now
        self.number += 1
        update, rest = divmod(self.number, self.trainer.config.accumulate)
        if rest:
            return
        if not math.isfinite(loss):
            self.diverged = update
        if self.diverged or self.signals.received is not None or now > self.deadline:
            self.model.stop_training = True
