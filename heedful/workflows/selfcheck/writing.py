"""Checks of what a model generates, with the search that is used for all decoding.

Axes: B examples, S source length, T text length, V vocabulary.
"""

import contextlib
import dataclasses
from typing import Any

import numpy as np

from heedful import backend
from heedful.config import DecodeConfig
from heedful.core.special_tokens import END_ID, PAD
from heedful.workflows.selfcheck.subject import Subject

BEAM = 3
WRITTEN_TOKENS = (
    8  # tokens of each result: few enough for one program per search, enough to read caches that others wrote
)


def cached(subject: Subject) -> tuple[Any, ...]:
    """Greedy search with caches takes the most likely tokens of one pass over the whole text, with the same score.

    Measures, in nats, the larger of two values: the largest gap between the most likely token and the one taken, and
    the largest error of a score per token.
    """
    errors, allowed = [], 0.0
    for written, (_, score), logits in _Search(subject, DecodeConfig(length_penalty=0.0)).compared():
        taken = logits[np.arange(len(written)), written]
        errors += [*(logits.max(axis=-1) - taken), abs(score - _log_probability(logits, written)) / len(written)]
        allowed = max(allowed, 2 * subject.rounding(logits[np.isfinite(logits)]))
    return float(np.max(errors)), allowed  # not Python's max, which may ignore NaN


def beams(subject: Subject) -> tuple[Any, ...]:
    """The scores of a beam are the log-probabilities of its texts, the best first."""
    width = max(1, min(BEAM, subject.vocab_size - 6))
    errors, allowed = [], 0.0
    before: dict[int, float] = {}
    search = _Search(subject, DecodeConfig(beam_size=width, n_best=width, length_penalty=0.0))
    with _short_texts(subject, search):
        for written, (row, score), logits in search.compared():
            errors += [abs(score - _log_probability(logits, written)), score - before.get(row, score)]
            before[row] = score
            allowed = max(allowed, 2 * len(written) * subject.rounding(logits[np.isfinite(logits)]))
    return float(np.max(errors)), allowed


def _log_probability(logits, written):
    """Return the log-probability of what was written."""
    return float((logits[np.arange(len(written)), written] - np.logaddexp.reduce(logits, axis=-1)).sum())


@contextlib.contextmanager
def _short_texts(subject, search):
    """Make the end token as likely as the one written most: a fresh model would seldom end a text."""
    if subject.trained:
        yield
        return
    written = np.concatenate([candidate.ids for results in search.run() for candidate in results])
    table = subject.model.output_projection.embeddings
    kept = backend.to_numpy(table)
    values = np.array(kept)
    values[END_ID] = values[np.bincount(written.astype(int)).argmax()] if len(written) else values[END_ID]
    table.assign(values)
    try:
        yield
    finally:
        table.assign(kept)


class _Search:
    """A search over the examples, in which padding is never written."""

    def __init__(self, subject, decode):
        width = subject.batch[subject.text].shape[1]
        decode = dataclasses.replace(decode, batch_size=4, max_length=width, forbidden=(PAD,))
        self.subject = subject
        self.probe = subject.task.probe(subject.run, subject.model, decode, subject.batch)
        self.limits = [min(limit, WRITTEN_TOKENS) for limit in self.probe.limits]

    def run(self):
        """Return the candidates for each example."""
        return self.probe.search(self.probe.sources, limits=self.limits)

    def compared(self):
        """Yield, for each candidate, its tokens, with the end token if it has one, (row, score), and the logits (T, V).

        The logits are those of one pass over the whole text; forbidden tokens have -inf.
        """
        results = self.run()
        for candidates in zip(*results, strict=True):
            written = [
                [*candidate.ids, END_ID] if len(candidate.ids) < limit else candidate.ids
                for candidate, limit in zip(candidates, self.limits, strict=True)
            ]
            logits = self.subject.logits_of(self._at_once(written))
            for row, ids in enumerate(written):
                first = self.probe.first_scored(row)
                scores = np.array(logits[row, first : first + len(ids)], np.float64)
                scores[:, list(self.probe.search.forbidden)] = -np.inf
                yield np.array(ids), (row, candidates[row].score), scores

    def _at_once(self, written):
        """Return inputs, in the shapes of the examples, for one pass over the texts that were written."""
        inputs = {name: np.zeros_like(array) for name, array in self.subject.inputs.items()}
        for row, ids in enumerate(written):
            self.probe.write_row(inputs, row, ids)
        if "segments" in inputs:
            inputs["segments"] = (inputs["ids"] != 0).astype(inputs["segments"].dtype)
        if "positions" in inputs:
            inputs["positions"][:] = np.arange(inputs["positions"].shape[1])
        return inputs
