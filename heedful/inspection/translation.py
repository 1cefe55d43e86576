"""Inspection of one translation: attention of every head, token probabilities, and alternatives.

Axes: L layers, N heads, T target length, S source length, V vocabulary.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from heedful import backend
from heedful.core.errors import InputError
from heedful.core.special_tokens import END_ID, START_ID
from heedful.inference.predictor import ScoredToken
from heedful.layers import Trace
from heedful.models.ensemble import Ensemble

ATTENTION_KINDS = ("encoder self", "decoder self", "cross")
PATHS = {
    "encoder self": "encoder/block_{}/self_attention",
    "decoder self": "decoder/block_{}/self_attention",
    "cross": "decoder/block_{}/cross_attention",
}
ALTERNATIVES = 5  # candidates that are kept for each position


@dataclass(frozen=True)
class TranslationInspection:
    """How a model translated one sentence: plain data, also for JSON (`as_dict`)."""

    translation: str
    source_tokens: list[str]
    """With the end token."""
    read_tokens: list[str]
    """The decoder's input: the start token, then the translation."""
    written_tokens: list[str]
    """The decoder's output: the translation, then the end token."""
    log_probabilities: list[float]
    """Of each written token, in nats."""
    alternatives: list[list[ScoredToken]]
    """For each written token the most likely tokens at its position, most likely first."""
    attention: dict[str, np.ndarray]
    """Weights (L, N, T, S) by kind: `encoder self`, `decoder self`, `cross`."""

    @classmethod
    def of(cls, translator: Any, source: str, target: str | None = None) -> "TranslationInspection":
        """Inspect one sentence.

        Args:
            translator: a `Translator` of a single model.
            source: a text.
            target: its translation; None: that of the translator.

        Raises:
            InputError: the translator is an ensemble, or the sentence is empty.
        """
        if isinstance(translator.model, Ensemble):
            raise InputError("Several models have no attention in common: inspect them one by one.")
        max_tokens = translator.model.max_length - 1
        source_ids = translator.source_tokenizer.encode(source)[:max_tokens]
        if not source_ids:
            raise InputError("An empty sentence cannot be inspected.")
        if target is None:
            target_ids = translator.decode_ids([source_ids])[0]  # up to the length limit, if no end token comes
        else:
            target_ids = translator.target_tokenizer.encode(target)
        target_ids = target_ids[:max_tokens]
        source_ids, read, written = [*source_ids, END_ID], [START_ID, *target_ids], [*target_ids, END_ID]
        model = translator.decoding_model

        def read_at_once(source, target):
            trace = Trace()
            return model((source, target), trace=trace), trace.records

        logits, trace = backend.compiled(read_at_once, model, brief=True)(np.array([source_ids]), np.array([read]))
        scores = _log_softmax(np.asarray(backend.to_numpy(logits), np.float64)[0])  # (T, V)
        pieces = translator.target_tokenizer.pieces
        depths = translator.model.architecture.depths
        return cls(
            translation=translator.target_tokenizer.decode(target_ids),
            source_tokens=translator.source_tokenizer.pieces(source_ids),
            read_tokens=pieces(read),
            written_tokens=pieces(written),
            log_probabilities=scores[np.arange(len(written)), written].tolist(),
            alternatives=[_best(row, pieces) for row in scores],
            attention={
                kind: np.stack([np.asarray(backend.to_numpy(trace[path.format(layer)]))[0] for layer in range(depth)])
                for kind, path in PATHS.items()
                for depth in [depths[path.split("/")[0]]]
            },
        )

    def num_layers(self, kind: str) -> int:
        """Return the number of layers that have a kind of attention."""
        return len(self.attention[kind])

    def heads(self, kind: str, layer: int) -> tuple[np.ndarray, list[str], list[str]]:
        """Return the weights (N, T, S) of a layer, counted from 1, and the tokens of their rows and columns."""
        if kind not in ATTENTION_KINDS:
            raise InputError(f"Unknown kind of attention {kind!r}: choose one of {', '.join(ATTENTION_KINDS)}.")
        if not 1 <= layer <= self.num_layers(kind):
            raise InputError(f"There is no layer {layer}: {kind} attention has layers 1 to {self.num_layers(kind)}.")
        rows = self.source_tokens if kind == "encoder self" else self.written_tokens
        columns = self.read_tokens if kind == "decoder self" else self.source_tokens
        return self.attention[kind][layer - 1], rows, columns

    def as_dict(self) -> dict[str, Any]:
        """Return everything as lists, texts and numbers, for JSON."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        plain["alternatives"] = [[candidate._asdict() for candidate in row] for row in self.alternatives]
        return plain | {"attention": {kind: weights.tolist() for kind, weights in self.attention.items()}}


def _log_softmax(logits):
    top = logits - logits.max(axis=-1, keepdims=True)
    return top - np.log(np.exp(top).sum(axis=-1, keepdims=True))


def _best(scores, pieces):
    best = np.argsort(-scores)[:ALTERNATIVES]
    return [ScoredToken(piece, float(np.exp(scores[token]))) for piece, token in zip(pieces(best), best, strict=True)]
