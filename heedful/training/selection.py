"""Which weights of a training are the best, and how they are saved."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from heedful.core.storage import read_checked
from heedful.runs.adapters import FILE as ADAPTER
from heedful.runs.adapters import adapted_layers, adapter_of, write_adapter
from heedful.runs.run import WEIGHTS, Run
from heedful.runs.weights import load_weights
from heedful.training.checkpoints import Checkpoints

GENERAL = "general_"  # prefix of the scores on general text
FLAT = 3  # validations with the same score after which it is called flat


class Selection:
    """Selects the best weights of a training by `train.select_by`, and saves them to the run folder.

    Of equal scores the one with the lower loss is better: a score such as BLEU may be 0 for a long time.

    The entries of `progress` that it reads and changes are saved with each checkpoint: `best`, `best_loss`,
    `best_update`, `waited` (validations since), `flat` (the last score, and how many validations in a row had it),
    `start` (the scores of a trained model before its training) and `base` (the fingerprint of that model's weights).

    Args:
        run: a `Run`; its config says how to select.
        model: the model in training.
        checkpoints: its `Checkpoints`.
        validate: returns the scores of the model by name; raises `InputError` if the selecting one is not finite.
        report: called with each line for the user.
    """

    def __init__(
        self, run: Run, model: keras.Model, checkpoints: Checkpoints, validate: Callable[[], dict[str, Any]],
        report: Callable[[str], Any],
    ):  # fmt: skip
        self.run, self.model, self.checkpoints, self.report = run, model, checkpoints, report
        self.validate, self.config = validate, run.config.train
        self.by = str(self.config.select_by)

    def begin(self, progress: dict[str, Any]) -> None:
        """Validate a trained model before its training: what is not better is not selected."""
        scores = self.validate()
        progress |= {"start": scores, "best": scores[self.by], "best_loss": scores.get("loss")}
        self._save(progress)
        self.report("before the training: " + "  ".join(f"valid {name} {score:.4g}" for name, score in scores.items()))

    def consider(self, scores: Mapping[str, Any], progress: dict[str, Any]) -> str:
        """Save the current weights if they are the best so far; return what to print beside their scores."""
        self._notice_flat(scores[self.by], progress)
        forgotten = self._forgotten(scores, progress)
        if forgotten or not (self._better(scores[self.by], progress["best"]) or self._breaks_tie(scores, progress)):
            progress["waited"] += 1
            return forgotten
        progress |= {"best": scores[self.by], "best_loss": scores.get("loss"), "waited": 0}
        self._save(progress)
        return "best"

    def _better(self, score, best):
        return best is None or (score < best if self.by == "loss" else score > best)

    def _breaks_tie(self, scores, progress):
        loss, best_loss = scores.get("loss"), progress.get("best_loss")
        return scores[self.by] == progress["best"] and loss is not None and best_loss is not None and loss < best_loss

    def _notice_flat(self, score, progress):
        """Report a score that has not changed for `FLAT` validations: it cannot tell states apart."""
        before, times = progress.get("flat", (None, 0))
        progress["flat"] = [score, times + 1 if score == before else 1]
        if progress["flat"][1] == FLAT:
            self.report(
                f"valid {self.by} has been {score:.4g} for {FLAT} validations: of these states, the lowest loss is "
                "selected. Another score may tell them apart, such as train.select_by = 'loss'."
            )

    def _forgotten(self, scores, progress):
        """Return how far a model has lost what it could do before, in words; an empty text if it may be selected."""
        name = GENERAL + self.by
        start = progress.get("start", {}).get(name)
        if start is None or name not in scores:
            return ""
        allowed = self.config.general_tolerance * abs(start)
        lost = scores[name] - start if self.by == "loss" else start - scores[name]
        return f"not selected: {name} is {lost:.3g} worse, {allowed:.3g} allowed" if lost > allowed else ""

    def _save(self, progress):
        if progress.get("base") and adapted_layers(self.model):
            adapter = adapter_of(self.model, progress["base"])
            with self.checkpoints.writing():
                write_adapter(self.run.path / ADAPTER, adapter)
        with self.checkpoints.writing():
            self.run.save_model(self.model)

    def finish(self, progress: dict[str, Any]) -> None:
        """Choose between the best single state and the average of the last ones."""
        arrays = self.checkpoints.arrays()  # copied before the model's weights change below
        if progress["best"] is None:
            self._score_once(progress, arrays)
        states = [state for state in self.run.checkpoints.paths() if int(state.stem)]  # without the untrained one
        states = states[-self.config.average :] if self.config.average > 1 else []
        if states:
            best, by = progress["best"], self.by
            average = self.checkpoints.average(states)
            load_weights(self.model, average, "the average of the last states")
            scores = self.validate()
            forgotten = self._forgotten(scores, progress)
            wins = not forgotten and (scores[by] == best or self._better(scores[by], best))
            self.report(
                f"average of the last {len(states)} states: valid {by} {scores[by]:.4g} "
                f"(best single state {best:.4g}): {'kept' if wins else forgotten or 'not kept'}"
            )
            if wins:
                with self.checkpoints.writing():
                    self.run.save_weights(average)
                progress["best"] = scores[by]  # so that no worse state replaces it after a resume
                self.checkpoints.save(progress, arrays)

    def _score_once(self, progress: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Score the run folder's weights, which lack a score by `select_by`; `arrays` is the last state.

        They exist if a training that had ended now selects by another score. Otherwise it stopped before its first
        validation, and the weights of the last update are saved as the best.
        """
        path = self.run.path / WEIGHTS
        if path.is_file():
            load_weights(self.model, read_checked(path)[0], path)
        else:
            self._save(progress)
            progress["best_update"] = progress["update"]
        progress["best"] = self.validate()[self.by]
        self.checkpoints.save(progress, arrays)

    def describe_change(self, scores: Mapping[str, float], progress: Mapping[str, Any]) -> str:
        """Return how the scores of the selected weights differ from those before the training."""
        start = progress.get("start", {})
        shown = [name for name in (self.by, GENERAL + self.by) if name in start]
        return ", ".join(
            f"{name.replace('_', ' ')} {scores[name] - start[name]:+.3g} ({start[name]:.4g} to {scores[name]:.4g})"
            for name in shown
            if name in scores and math.isfinite(start[name])
        )
