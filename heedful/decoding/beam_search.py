"""Beam search.

Axes: B sentences, K hypotheses, P results, C capacity in tokens, V vocabulary, S source length.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from keras import ops

from heedful.backend import Tensor
from heedful.decoding.strategies import Step, length_divisor, pick_rows, write
from heedful.decoding.top_k import MINUS_INFINITY, log_normaliser, top_k

MIN_ATTENTION = 1e-20  # keeps the logarithm finite where there was no attention


class Beams(NamedTuple):
    """The state of `BeamSearch`: live hypotheses, best first, and the best finished ones."""

    tokens: Any  # (B, K, C)
    last: Any  # (B, K)
    scores: Any  # (B, K)
    ancestors: Any  # (B, K, C): which of the K hypotheses wrote each cache entry
    coverage: Any  # (B, K, S): sum of the attention to each source token; S is 1 without a coverage penalty
    done_tokens: Any  # (B, P, C)
    done_scores: Any  # (B, P), normalised by length
    done_count: Any  # (B,)

    def writing_at(self, place: Tensor) -> "Beams":
        """Return the beams after each has stored its last token at cache index `place`."""
        _, width, capacity = self.ancestors.shape
        here = ops.equal(ops.arange(capacity, dtype="int32"), place)
        return self._replace(ancestors=ops.where(here, ops.arange(width, dtype="int32")[:, None], self.ancestors))


@dataclass(frozen=True)
class BeamSearch:
    """Keep the `width` most likely hypotheses; one that ends leaves the beam.

    At least `width` of the 2 x width best candidates do not end, and continue. A candidate that ends counts if it is
    among the first `width`. Scores are divided by a penalty for the length l: ((5 + l) / 6)^a for `gnmt`
    (Wu et al. 2016, section 7), l^a for `average`; a = 0 is the plain log-probability. The coverage penalty adds
    b sum_s log(min(total attention to source token s, 1)), which is negative (Wu et al. 2016, equation 14).

    Args:
        end_id: end token of the target vocabulary.
        width: hypotheses K.
        kept: number of results per sentence, best first.
        length_penalty: a.
        length_norm: `gnmt` or `average`.
        coverage_penalty: b.
        stop: `attainable`: as soon as no live hypothesis can become better than the results kept; `width`: when
            `width` hypotheses have ended.
    """

    end_id: int
    width: int
    kept: int = 1
    length_penalty: float = 0.0
    length_norm: str = "gnmt"
    coverage_penalty: float = 0.0
    stop: str = "attainable"

    @property
    def attention(self) -> bool:
        """Whether each step needs the attention to the source."""
        return bool(self.coverage_penalty)

    def start(self, sentences: int, capacity: int, source_length: int) -> Beams:
        """Return beams in which only the first hypothesis is live: the others would be its copies."""
        shape = (sentences, self.width)
        first = ops.arange(self.width) > 0
        return Beams(
            tokens=ops.zeros((*shape, capacity), "int32"),
            last=ops.zeros(shape, "int32"),
            scores=ops.zeros(shape, "float32") + ops.where(first, MINUS_INFINITY, 0.0),
            ancestors=ops.zeros((*shape, capacity), "int32"),
            coverage=ops.zeros((*shape, source_length if self.attention else 1), "float32"),
            done_tokens=ops.zeros((sentences, self.kept, capacity), "int32"),
            done_scores=ops.full((sentences, self.kept), MINUS_INFINITY, "float32"),
            done_count=ops.zeros((sentences,), "int32"),
        )

    def extend(self, state: Beams, logits: Tensor, step: Step) -> tuple[Beams, Tensor]:
        """Extend the hypotheses by the best tokens; return the next state and which sentences are done (B,)."""
        k, vocab_size = self.width, logits.shape[-1]
        continued = logits + (state.scores - log_normaliser(logits))[..., None]  # (B, K, V)
        scores, places = top_k(ops.reshape(continued, (-1, k * vocab_size)), 2 * k)  # (B, 2K)
        parents, words = places // vocab_size, places % vocab_size
        ends = ops.equal(words, self.end_id)
        coverage = state.coverage if step.attention is None else state.coverage + step.attention

        rank = ops.arange(scores.shape[-1])
        ending = ops.logical_and(ops.logical_and(ends, rank < k), scores > MINUS_INFINITY / 2)[:, :k]
        ended_scores = self._normalised(scores[:, :k], step.age + 1, pick_rows(coverage, parents[:, :k]))
        ended_tokens = write(pick_rows(state.tokens, parents[:, :k]), step.age, words[:, :k])
        done = _Done(state.done_tokens, state.done_scores)
        done = done.add(ended_tokens, ops.where(ending, ended_scores, MINUS_INFINITY))
        count = state.done_count + ops.sum(ops.cast(ending, "int32"), axis=-1)

        # The first k that do not end continue: there are enough, since each parent has one candidate that ends.
        order = ops.argsort(ops.where(ends, rank + scores.shape[-1], rank), axis=-1)[:, :k]
        live_scores = ops.take_along_axis(ops.where(ends, MINUS_INFINITY, scores), order, axis=-1)
        parents = ops.take_along_axis(parents, order, axis=-1)
        words = ops.take_along_axis(words, order, axis=-1)
        tokens = write(pick_rows(state.tokens, parents), step.age, words)
        coverage = pick_rows(coverage, parents)

        cut = self._normalised(live_scores, step.age + 1, coverage)
        done = done.add(
            tokens, ops.where(step.last[:, None], cut, MINUS_INFINITY)
        )  # a hypothesis that is cut off counts as is
        if self.stop == "attainable":
            enough = done.scores[:, -1] >= self._attainable(live_scores[:, 0], step)
        else:
            enough = count >= k
        state = Beams(
            tokens, words, live_scores, pick_rows(state.ancestors, parents), coverage, done.tokens, done.scores, count
        )
        return state, ops.logical_or(enough, step.last)

    def results(self, state: Beams) -> tuple[Tensor, Tensor]:
        """Return tokens (B, P, C) and normalised scores (B, P), best first, of sentences that are done."""
        return state.done_tokens, state.done_scores

    def _penalty(self, length: Tensor) -> Tensor:
        return length_divisor(length, self.length_penalty, self.length_norm)

    def _normalised(self, scores: Tensor, length: Tensor, coverage: Tensor) -> Tensor:
        scores = scores / self._penalty(length)[:, None]
        if self.coverage_penalty:
            attended = ops.log(ops.clip(coverage, MIN_ATTENTION, 1.0))
            scores = scores + self.coverage_penalty * ops.sum(attended, axis=-1)
        return scores

    def _attainable(self, scores: Tensor, step: Step) -> Tensor:
        """Return an upper bound on the final scores of live hypotheses (B,): no loss, most favourable length."""
        return scores / self._penalty(step.limit)


class _Done(NamedTuple):
    """The best results so far, best first."""

    tokens: Any  # (B, P, C)
    scores: Any  # (B, P)

    def add(self, tokens: Tensor, scores: Tensor) -> "_Done":
        """Add candidates (B, K, C) with scores (B, K); keep the P best of all."""
        kept = self.scores.shape[-1]
        all_tokens = ops.concatenate([self.tokens, tokens], axis=1)
        all_scores = ops.concatenate([self.scores, scores], axis=1)
        scores, places = top_k(all_scores, kept)
        return _Done(pick_rows(all_tokens, places), scores)
