"""Checks of how a model learns: its labels, the gradients of its weights, and that its loss falls.

Axes: B examples, T text length, M masked places, V vocabulary.
"""

import math
from typing import Any

import numpy as np

from heedful import backend
from heedful.config.architecture import DROPOUTS
from heedful.core.storage import name_in_model
from heedful.runs.weights import load_weights, weights_by_name
from heedful.workflows.selfcheck.subject import ROUNDING, Subject

UPDATES = 50
LAST = 5  # of these updates, whose mean loss is compared with the first one
MAX_REMAINING = 0.8  # share of the reducible loss that may remain (0.78 with d_model 8)
MAX_REMAINING_FROZEN = 0.99  # the same with frozen weights
START_TOLERANCE = 3.0  # nats between the first loss and that of random guessing
TIED_TOLERANCE = 0.5  # times sqrt(d_model), in addition for a tied table, which at first repeats the token just read
MIN_DROPOUT = 1e-3  # a lower rate may drop nothing in a small batch
MIN_TEXT_DROPOUT = 0.1  # the same for rates of whole texts or tokens
GRADIENT_ROUNDING = 10  # times `ROUNDING`, relative to the largest gradient


def labels(subject: Subject) -> tuple[Any, ...]:
    """Return the share of labels that are not what the model should predict: next token, masked token or class."""
    return subject.task.wrong_labels(subject.run, subject.whole_batch), 0.0


def start(subject: Subject) -> tuple[Any, ...]:
    """Compare the loss of an untrained model with that of guessing: log(choices), for label sets choices x log(2)."""
    _, nll, _, tokens = subject.sums()
    choices, width = subject.model.output_projection.embeddings.shape
    tied = subject.run.config.model.tie not in ("none", "inputs")
    allowed = START_TOLERANCE + tied * TIED_TOLERANCE * width**0.5
    guessing = choices * math.log(2) if subject.run.config.data.several_labels else math.log(choices)
    return abs(float(nll / tokens) - guessing), allowed


def accumulation(subject: Subject) -> tuple[Any, ...]:
    """The gradient of two halves of a batch, weighted by their tokens, is that of the whole batch."""
    practice = subject.repeatable
    first = np.zeros_like(subject.batch["weights"])
    first[: len(first) // 2] = subject.batch["weights"][: len(first) // 2]
    halves = [subject.batch | {"weights": weights} for weights in (first, subject.batch["weights"] - first)]
    tokens = subject.batch["weights"].sum()
    whole = practice.gradient([subject.batch], tokens)
    if practice.micro_batches > 1:
        parts = practice.gradient(halves, tokens)
    else:
        parts = [sum(both) for both in zip(*(practice.gradient([half], tokens) for half in halves), strict=True)]
    scale = max(float(np.abs(gradient).max()) for gradient in whole)
    differences = [np.abs(a - b).max() for a, b in zip(whole, parts, strict=True)]
    return float(np.max(differences)), scale * GRADIENT_ROUNDING * ROUNDING[subject.precision]


def gradients(subject: Subject) -> tuple[Any, ...]:
    """Count trainable weights without a gradient, and frozen weights with one."""
    practice = subject.repeatable
    computed = practice.gradient([subject.batch], subject.batch["weights"].sum())
    reached = {
        name_in_model(weight)
        for weight, gradient in zip(practice.objective.trainable_variables, computed, strict=True)
        if np.isfinite(gradient).all() and np.abs(gradient).max() > 0
    }
    names = {name_in_model(weight) for weight in practice.model.weights}
    frozen = {name for name in names if name.startswith(subject.frozen)}
    wrong = sorted((names - frozen - reached) | (frozen & reached))
    return len(wrong), 0, ", ".join(wrong[:3])


def adapters(subject: Subject) -> tuple[Any, ...]:
    """Return how much fresh adapters change the logits: nothing, since their second matrix starts at zero."""
    plain, adapted = subject.run.build_model(), subject.build(subject.run)
    load_weights(adapted, weights_by_name(plain), "a fresh model")
    one, other = (subject.logits_of(subject.inputs, model) for model in (plain, adapted))
    return float(np.abs(one - other).max()), 0.0


def dropout(subject: Subject) -> tuple[Any, ...]:
    """Two updates from the same weights have different losses if, and only if, dropout is on."""
    settings = subject.run.config.model
    rates = {name: getattr(settings, name) for name in DROPOUTS}
    if subject.task.all_frozen and subject.run.config.train.freeze:
        rates = {"dropout": settings.dropout}  # the others are in the frozen encoder
    rate = max(rates.values())
    of_elements = max(value for name, value in rates.items() if name not in ("layer_dropout", "token_dropout"))
    if 0 < rate < MIN_TEXT_DROPOUT and of_elements < MIN_DROPOUT:
        return 0.0, 0.0
    practice, losses = subject.practice, []
    for _ in range(2):
        practice.reset(seeds=False)
        losses.append(practice.fit([subject.batch] * practice.micro_batches))
    return float((losses[0] != losses[1]) != (rate > 0)), 0.0


def loss_falls(subject: Subject) -> tuple[Any, ...]:
    """Return the share of one batch's reducible loss that remains after updates on it."""
    practice = subject.practice
    practice.reset()
    batches = [subject.batch] * practice.micro_batches
    frozen = [
        (weight, backend.to_numpy(weight))
        for weight in practice.model.weights
        if name_in_model(weight).startswith(subject.frozen)
    ]
    first = practice.fit(batches)
    practice.fit(batches * (UPDATES - 1 - LAST))
    last = practice.fit(batches * LAST)
    moved = [name_in_model(weight) for weight, value in frozen if not np.array_equal(backend.to_numpy(weight), value)]
    if moved:
        return float("inf"), MAX_REMAINING, f"frozen weights moved: {', '.join(moved[:3])}"
    floor = _smoothed_entropy(subject)
    return (last - floor) / (first - floor), MAX_REMAINING_FROZEN if subject.frozen else MAX_REMAINING


def _smoothed_entropy(subject):
    """Return the smallest loss that label smoothing allows, in nats."""
    smoothing = subject.run.config.train.label_smoothing
    if not smoothing:
        return 0.0
    choices = subject.model.output_projection.embeddings.shape[0]
    if subject.run.config.data.several_labels:
        share = smoothing / 2
        return -choices * (share * math.log(share) + (1 - share) * math.log(1 - share))
    rest = smoothing / choices
    gold = 1 - smoothing + rest
    return -(gold * math.log(gold) + (choices - 1) * rest * math.log(rest))
