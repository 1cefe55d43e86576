"""Strategies that choose the next token and decide when a sentence is done: greedy search and sampling.

A strategy keeps `width` hypotheses of each sentence, and returns P results when the sentence is done.

Axes: B sentences, K hypotheses, P results, C capacity in tokens, V vocabulary, S source length.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from keras import ops

from heedful.backend import Tensor
from heedful.decoding.top_k import MINUS_INFINITY, argmax, log_normaliser, top_k
from heedful.layers.softmax import softmax


class Number(NamedTuple):
    """A setting that is an input of the search. `inverse` is 1 / `value`, rounded as XLA rounds that of a constant."""

    value: Any
    inverse: Any


def from_settings(kind: type, settings: Mapping[str, Any], **arguments: Any) -> Any:
    """Return a strategy or constraints of a `kind`, with those of the settings for which it has a field."""
    names = {one.name for one in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in settings.items() if name in names} | arguments)


class Step(NamedTuple):
    """The progress of each sentence when a token is chosen."""

    age: Any  # (B,), tokens written
    limit: Any  # (B,), most tokens allowed
    last: Any  # (B,), whether this is the last token that fits
    sentence: Any  # (B,), its number
    attention: Any  # (B, K, S), attention to the source, or None


class Strategy(Protocol):
    """What chooses tokens. `State` is a tuple of arrays with `tokens`, `last`, `ancestors` and `writing_at`."""

    @property
    def width(self) -> int:
        """Hypotheses of each sentence, K."""

    @property
    def attention(self) -> bool:
        """Whether each step needs the attention to the source."""

    def start(self, sentences: int, capacity: int, source_length: int) -> Any:
        """Return the state of so many sentences without tokens."""

    def extend(self, state: Any, logits: Tensor, step: Step) -> tuple[Any, Tensor]:
        """Add a token to every hypothesis; return the next state and which sentences are done (B,)."""

    def results(self, state: Any) -> tuple[Tensor, Tensor]:
        """Return tokens (B, P, C) and normalised scores (B, P) of sentences that are done."""


class Hypotheses(NamedTuple):
    """The state of `Greedy` and `Sampling`."""

    tokens: Any  # (B, K, C), padded with zeros
    last: Any  # (B, K), the next input token; the search sets the first one
    scores: Any  # (B, K), summed log-probabilities in nats
    ended: Any  # (B, K), True after the end token

    @property
    def ancestors(self) -> Tensor:
        """Which of the K hypotheses wrote each cache entry of a hypothesis: itself (1, K, C)."""
        _, width, capacity = self.tokens.shape
        return ops.broadcast_to(ops.arange(width, dtype="int32")[None, :, None], (1, width, capacity))

    def writing_at(self, place: Tensor) -> "Hypotheses":
        """Return the hypotheses after each has stored its last token at cache index `place`."""
        return self


@dataclass(frozen=True)
class Greedy:
    """Choose the most likely token.

    Args:
        end_id: end token of the target vocabulary.
        scored: sum the log-probabilities, which costs a pass over the vocabulary. Otherwise scores are 0.
        length_penalty, length_norm: see `BeamSearch`.
    """

    end_id: int
    scored: bool = False
    length_penalty: float = 0.0
    length_norm: str = "gnmt"
    width = 1
    attention = False

    def start(self, sentences: int, capacity: int, source_length: int) -> Hypotheses:
        """Return fresh hypotheses."""
        shape = (sentences, self.width)
        return Hypotheses(
            ops.zeros((*shape, capacity), "int32"), ops.zeros(shape, "int32"), ops.zeros(shape, "float32"),
            ops.zeros(shape, "bool"),
        )  # fmt: skip

    def extend(self, state: Hypotheses, logits: Tensor, step: Step) -> tuple[Hypotheses, Tensor]:
        """Add a token to every hypothesis; return the next state and which sentences are done (B,).

        Args:
            state: `Hypotheses`.
            logits: (B, K, V) float32, constrained.
            step: the `Step` of the search.
        """
        ids = self._choose(logits, step)
        ids = ops.where(state.ended, 0, ids)
        scores = state.scores
        if self.scored:
            chosen = ops.take_along_axis(logits, ids[..., None], axis=-1)[..., 0] - log_normaliser(logits)
            scores = scores + ops.where(state.ended, 0.0, chosen)
        tokens = write(state.tokens, step.age, ids)
        ended = ops.logical_or(state.ended, ops.equal(ids, self.end_id))
        done = ops.logical_or(ops.all(ended, axis=-1), step.last)
        return Hypotheses(tokens, ids, scores, ended), done

    def results(self, state: Hypotheses) -> tuple[Tensor, Tensor]:
        """Return tokens (B, P, C) and normalised scores (B, P) of sentences that are done."""
        if not (self.scored and self.length_penalty):
            return state.tokens, state.scores
        length = ops.maximum(1, ops.sum(ops.cast(ops.not_equal(state.tokens, 0), "int32"), axis=-1))
        return state.tokens, state.scores / length_divisor(length, self.length_penalty, self.length_norm)

    def _choose(self, logits: Tensor, step: Step) -> Tensor:
        return argmax(logits)


@dataclass(frozen=True)
class Sampling(Greedy):
    """Draw each token from the model's distribution, or from its more likely part.

    Args:
        numbers: uniform random numbers (W + 1, K, steps), one for each token. A sample depends on these numbers and on
            the model only, so it is the same in any batch.
        width: number of samples per sentence.
        temperature: a `Number` that divides the logits; below 1 sharpens the distribution. None: 1.
        top_k: draw from this many most likely tokens; 0: all.
        top_p: draw from the smallest set of tokens with this total probability (Holtzman et al. 2020), a `Number`;
            None: all.
        min_p: draw from tokens with at least this fraction of the highest probability, a `Number`; None: all.
    """

    numbers: Any = None
    width: int = 1
    temperature: Number | None = None
    top_k: int = 0
    top_p: Number | None = None
    min_p: Number | None = None

    def results(self, state: Hypotheses) -> tuple[Tensor, Tensor]:
        """Return tokens and scores as `Greedy` does, best first; all samples are results."""
        tokens, scores = super().results(state)
        order = ops.argsort(-scores, axis=-1)
        return pick_rows(tokens, order), ops.take_along_axis(scores, order, axis=-1)

    def _choose(self, logits: Tensor, step: Step) -> Tensor:
        if self.temperature is not None:
            logits = logits * self.temperature.inverse
        if self.top_k:
            threshold = top_k(logits, min(self.top_k, logits.shape[-1]))[0][..., -1:]
            logits = ops.where(logits < threshold, MINUS_INFINITY, logits)
        probabilities = softmax(logits)
        if self.top_p is not None:
            falling = ops.flip(ops.sort(probabilities, axis=-1), axis=-1)
            before = ops.cumsum(falling, axis=-1) - falling  # probability of all better tokens
            threshold = ops.min(ops.where(before < self.top_p.value, falling, 1.0), axis=-1, keepdims=True)
            probabilities = ops.where(probabilities < threshold, 0.0, probabilities)
        if self.min_p is not None:
            threshold = self.min_p.value * ops.max(probabilities, axis=-1, keepdims=True)
            probabilities = ops.where(probabilities < threshold, 0.0, probabilities)
        rising = ops.cumsum(probabilities, axis=-1)
        numbers = ops.take(self.numbers, step.sentence, axis=0)  # (B, K, steps)
        at = ops.broadcast_to(step.age[:, None, None], (*ops.shape(logits)[:2], 1))
        wanted = ops.take_along_axis(numbers, at, axis=-1) * rising[..., -1:]
        ids = ops.sum(ops.cast(rising <= wanted, "int32"), axis=-1)
        last = ops.argmax(ops.where(probabilities > 0, ops.arange(logits.shape[-1]), -1), axis=-1)
        return ops.minimum(ids, ops.cast(last, "int32"))  # rounding must not select a token of probability 0


def write(tokens: Tensor, age: Tensor, ids: Tensor) -> Tensor:
    """Return `tokens` (B, K, C) with `ids` (B, K) at place `age` (B,)."""
    here = ops.equal(ops.arange(tokens.shape[-1], dtype="int32"), age[:, None])  # (B, C)
    return ops.where(here[:, None], ids[..., None], tokens)


def length_divisor(length: Tensor, strength: float, norm: str) -> Tensor:
    """Return the divisor of the scores of results of `length` tokens, end token included."""
    length = ops.cast(length, "float32")
    return ((5.0 + length) / 6.0 if norm == "gnmt" else length) ** strength


def pick_rows(x: Tensor, places: Tensor) -> Tensor:
    """Pick rows of `x` (B, K, ...) by `places` (B, R)."""
    return ops.take_along_axis(x, places[..., None], axis=1)
