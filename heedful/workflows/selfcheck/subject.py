"""What is checked: a run's model, and a few of its own examples.

Axes: B examples, T text length, V vocabulary.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from heedful import backend
from heedful.config.architecture import DROPOUTS
from heedful.core.special_tokens import FIRST_ID
from heedful.runs.adapters import adapted_layers, parts_of
from heedful.runs.run import Run
from heedful.training.freezing import prepare_weights
from heedful.training.objective import batch_sums
from heedful.workflows.selfcheck.practice import TrialTraining

ROWS, LENGTH = 8, 32  # large enough to show a fault, small enough to take seconds
IMPOSSIBLE_BELOW = -1e8  # logits below it belong to tokens that an imported model must never write
UNUSUAL = 3  # times the rate of the checks: the run's own rate is tried if it is higher
ROUNDING = {"float32": 1e-4, "bfloat16": 5e-2}  # relative to the largest logit


class Subject:
    """A run's model and some of its examples; the first of them is padded after its first half.

    Fresh weights get a little noise: many faults do not show at zeros and ones, where some weights start.

    Args:
        run: a `Run`.
        batch: one of its batches.
        frozen: name prefixes of the weights that must not change.
        trained: whether to check the run's own weights instead of fresh ones.
    """

    def __init__(self, run: "Run", batch: Any, frozen: tuple[str, ...] = (), trained: bool = False):
        self.run, self.task, self.frozen, self.trained = run, run.task, frozen, trained
        self.whole_batch, self.batch = batch, shrink(batch)
        self.model = run.load_model() if trained else self.build(run)
        if not trained:
            _add_noise(self.model)
        self.text = self.task.text_side  # what the logits belong to
        self._forward = backend.compiled(lambda inputs: self.model(inputs), self.model, brief=True)
        self._sums = backend.compiled(lambda batch: batch_sums(self.model, batch), self.model, brief=True)

    def build(self, run: "Run") -> Any:
        """Return a fresh model of `run`, frozen as the config says."""
        model = run.build_model()
        prepare_weights(model, run.config)
        return model

    @functools.cached_property
    def practice(self) -> TrialTraining:
        """A fresh model of the run, as it will be trained."""
        return self._practice(self.run)

    @functools.cached_property
    def repeatable(self) -> Any:
        """A model in training whose updates are reproducible, even if the examples come in several batches."""
        config = self.run.config
        if config.train.accumulate_batches == 1 or not any(getattr(config.model, name) for name in DROPOUTS):
            return self.practice  # the same seeds give the same dropout
        config = dataclasses.replace(
            config,
            model=dataclasses.replace(config.model, **dict.fromkeys(DROPOUTS, 0.0)),
            train=dataclasses.replace(config.train, consistency="none", consistency_weight=None),
        )
        return self._practice(Run(self.run.path, config, self.run.source_tokenizer, self.run.target_tokenizer))

    def _practice(self, run):
        width = run.config.model.d_model
        rate, highest = 0.02 * width**-0.5, run.config.train.highest_rate(width)
        if highest > UNUSUAL * rate:  # a rate that is too high shows here; usual ones would find fewer faults
            rate = highest
        model = self.build(run)
        for layer in adapted_layers(model).values():  # zeros would keep the gradient from the other matrix
            _, b = parts_of(layer)
            b.assign(np.random.default_rng(5).normal(size=b.shape, scale=0.02))
        return TrialTraining(model, run.config.train, self.batch, rate)

    @property
    def precision(self) -> str:
        """The precision in which the model computes."""
        return self.run.config.train.precision

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """The arrays that the model reads, by name."""
        return {name: array for name, array in self.batch.items() if name not in ("labels", "weights", "places")}

    @property
    def real(self) -> np.ndarray:
        """Mask of the tokens that are not padding (B, T)."""
        return self.batch[self.text] != 0

    @property
    def vocab_size(self) -> int:
        """Size of the output vocabulary, or of the input vocabulary if nothing is generated."""
        return len(self.run.target_tokenizer)

    def logits(self, **changed: Any) -> np.ndarray:
        """Return the examples' float32 logits (B, T, V), of a classifier (B, C), with some of the inputs changed."""
        return self.logits_of(self.inputs | changed)

    def logits_of(self, inputs: Any, model: Any = None) -> np.ndarray:
        """Return float32 logits for any inputs, of another model if one is given."""
        forward = self._forward if model is None else backend.compiled(lambda x: model(x), model, brief=True)
        return np.asarray(backend.to_numpy(forward(inputs)), np.float32)

    def sums(self, **changed: Any) -> Any:
        """Return the four sums of the loss (4,), with some arrays of the batch changed."""
        return backend.to_numpy(self._sums(self.batch | changed))

    def rounding(self, logits: np.ndarray) -> float:
        """Return how much logits may differ if computed in another order."""
        possible = logits[logits > IMPOSSIBLE_BELOW]
        return ROUNDING[self.precision] * float(np.abs(possible).max(initial=1.0))

    def other_tokens(self, ids: np.ndarray) -> np.ndarray:
        """Return other ids of real tokens in place of `ids`; padding stays padding."""
        size = len(self.run.target_tokenizer)
        others = np.random.default_rng(1).integers(FIRST_ID, max(FIRST_ID + 1, size), ids.shape)
        others = np.where(others == ids, np.where(others > FIRST_ID, others - 1, others + 1), others)
        return np.where(ids == 0, 0, np.minimum(others, size - 1)).astype(ids.dtype)


def _add_noise(model):
    random = np.random.default_rng(4)
    for weight in model.weights:
        weight.assign(backend.to_numpy(weight) + random.normal(size=weight.shape, scale=0.02))


def shrink(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return `ROWS` rows of a batch, cut to `LENGTH`; the second half of the first row becomes padding.

    Of the pairs packed into a row, only the first is kept.
    """
    rows = np.arange(ROWS) % len(batch["labels"])
    whole = {"labels"} if batch["labels"].shape != batch["weights"].shape else set()  # a decision for each class
    small = {name: np.array(array[rows] if name in whole else array[rows, :LENGTH]) for name, array in batch.items()}
    for side, names in (("source", ["source"]), ("target", ["target", "labels", "weights"])):
        if f"{side}_segments" in small:
            first = small.pop(f"{side}_segments") == 1
            del small[f"{side}_positions"]
            longest = max(1, int(first.sum(axis=1).max()))
            small |= {name: (small[name] * first)[:, :longest] for name in names}
    for name in ("source", "target", "ids"):
        if name in small:
            small[name][0, max(2, small[name].shape[1] // 2) :] = 0
    if "places" in small:  # positions that were cut off do not count
        width = small["ids"].shape[1]
        inside = small["places"] < width
        small["places"] = np.where(inside, small["places"], 0)
        counts = inside & (np.take_along_axis(small["ids"], small["places"], axis=1) != 0)
        none = ~(counts & (small["weights"] > 0)).any(axis=1)  # rows without a label predict a visible token
        small["places"][none, 0], small["labels"][none, 0] = 1, small["ids"][none, 1]
        small["weights"][none, 0], counts[none, 0] = 1, True
    elif small["weights"].shape[1] > 1:
        counts = small["target" if "target" in small else "ids"] != 0
    else:
        return small
    small["weights"] = np.where(counts, small["weights"], 0).astype(np.float32)
    small["labels"] = np.where(counts, small["labels"], 0)
    return small
