"""How the next token is chosen, and when a sentence is done: greedy, beam search, sampling.

A strategy keeps `width` hypotheses of each sentence side by side, and gives P results when the sentence is done.

Axes: B sentences, K hypotheses, P results, C places for tokens, V vocabulary, S source length.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from keras import ops

from heedful.generation.top import NEVER, argmax, log_normaliser, top_k
from heedful.layers.attention import softmax

LEAST_ATTENTION = 1e-20  # so that the logarithm of none is finite


class Step(NamedTuple):
    """Where each sentence stands when a token is to be chosen."""

    age: Any  # (B,), tokens it has already
    limit: Any  # (B,), the most it may have
    last: Any  # (B,), whether this is the last for which there is room
    sentence: Any  # (B,), its number
    attention: Any  # (B, K, S), what this step read of the source, or None


class Hypotheses(NamedTuple):
    """What is being written: the state of `Greedy` and `Sampling`."""

    tokens: Any  # (B, K, C), padded with zeros
    last: Any  # (B, K), the token to be read next; the search sets the first
    scores: Any  # (B, K), summed log-probabilities in nats
    ended: Any  # (B, K), True after the end token

    @property
    def ancestors(self):
        """Which of the K wrote what stands at each place of a hypothesis' past: itself (1, K, C)."""
        _, width, room = self.tokens.shape
        return ops.broadcast_to(ops.arange(width, dtype="int32")[None, :, None], (1, width, room))

    def writing_at(self, place):
        """Return the hypotheses when each has stored its last token at `place` of the cache."""
        return self


class Beams(NamedTuple):
    """The state of `BeamSearch`: hypotheses that go on, best first, and the best that have ended."""

    tokens: Any  # (B, K, C)
    last: Any  # (B, K)
    scores: Any  # (B, K)
    ancestors: Any  # (B, K, C): which of the K wrote what stands at each place of the cache
    coverage: Any  # (B, K, S): attention each source token has had; S is 1 where coverage is not counted
    done_tokens: Any  # (B, P, C)
    done_scores: Any  # (B, P), normalised by length
    done_count: Any  # (B,)

    def writing_at(self, place):
        """Return the beams when each has stored its last token at `place` of the cache."""
        _, width, room = self.ancestors.shape
        here = ops.equal(ops.arange(room, dtype="int32"), place)
        return self._replace(ancestors=ops.where(here, ops.arange(width, dtype="int32")[:, None], self.ancestors))


@dataclass(frozen=True)
class Greedy:
    """Take the likeliest token.

    Args:
        end_id: of the target vocabulary.
        scored: add up log-probabilities, which costs a pass over the vocabulary; scores are 0 without.
        length_penalty, length_norm: by which scores are divided, as those of a `BeamSearch`.
    """

    end_id: int
    scored: bool = False
    length_penalty: float = 0.0
    length_norm: str = "gnmt"
    width = 1
    attention = False

    def start(self, sentences, room, source_length):
        """Return fresh hypotheses."""
        shape = (sentences, self.width)
        return Hypotheses(
            ops.zeros((*shape, room), "int32"), ops.zeros(shape, "int32"), ops.zeros(shape, "float32"),
            ops.zeros(shape, "bool"),
        )  # fmt: skip

    def extend(self, state, logits, step):
        """Add a token to every hypothesis; return the next state and which sentences are done (B,).

        Args:
            state: `Hypotheses`.
            logits: (B, K, V) float32, after the rules.
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

    def results(self, state):
        """Return tokens (B, P, C) and normalised scores (B, P) of sentences that are done."""
        if not (self.scored and self.length_penalty):
            return state.tokens, state.scores
        length = ops.maximum(1, ops.sum(ops.cast(ops.not_equal(state.tokens, 0), "int32"), axis=-1))
        return state.tokens, state.scores / _penalty(length, self.length_penalty, self.length_norm)

    def _choose(self, logits, step):
        return argmax(logits)


@dataclass(frozen=True)
class Sampling(Greedy):
    """Draw each token from the model's distribution, or from the better part of it.

    Args:
        numbers: uniform random numbers (W + 1, K, steps), one for each token to be drawn: what is drawn for a sentence
            depends on nothing else, so it is the same in any batch.
        width: samples of a sentence.
        temperature: divides the logits; below 1 sharpens.
        top_k: draw from this many best words only; 0: all.
        top_p: from the fewest words that have this probability together (Holtzman et al. 2020); 1: all.
        min_p: from words at least this share as likely as the best; 0: all.
    """

    numbers: Any = None
    width: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def results(self, state):
        """As of `Greedy`, best first; all samples are results."""
        tokens, scores = super().results(state)
        order = ops.argsort(-scores, axis=-1)
        return _rows(tokens, order), ops.take_along_axis(scores, order, axis=-1)

    def _choose(self, logits, step):
        logits = logits / self.temperature
        if self.top_k:
            least = top_k(logits, min(self.top_k, logits.shape[-1]))[0][..., -1:]
            logits = ops.where(logits < least, NEVER, logits)
        probabilities = softmax(logits)
        if self.top_p < 1:
            falling = ops.flip(ops.sort(probabilities, axis=-1), axis=-1)
            before = ops.cumsum(falling, axis=-1) - falling  # probability of all better words
            least = ops.min(ops.where(before < self.top_p, falling, 1.0), axis=-1, keepdims=True)
            probabilities = ops.where(probabilities < least, 0.0, probabilities)
        if self.min_p:
            least = self.min_p * ops.max(probabilities, axis=-1, keepdims=True)
            probabilities = ops.where(probabilities < least, 0.0, probabilities)
        rising = ops.cumsum(probabilities, axis=-1)
        numbers = ops.take(self.numbers, step.sentence, axis=0)  # (B, K, steps)
        at = ops.broadcast_to(step.age[:, None, None], (*ops.shape(logits)[:2], 1))
        wanted = ops.take_along_axis(numbers, at, axis=-1) * rising[..., -1:]
        ids = ops.sum(ops.cast(rising <= wanted, "int32"), axis=-1)
        last = ops.argmax(ops.where(probabilities > 0, ops.arange(logits.shape[-1]), -1), axis=-1)
        return ops.minimum(ids, ops.cast(last, "int32"))  # rounding must not lead beyond the last possible word


@dataclass(frozen=True)
class BeamSearch:
    """Keep the `width` likeliest hypotheses; one that ends leaves the beam and is never charged again.

    2 x width candidates are looked at, so that `width` go on even if all of the best end. A candidate counts as ended
    if it is among the first `width`. Scores are divided by a penalty for the length l: ((5 + l) / 6)^a for `gnmt`
    (Wu et al. 2016, section 7), l^a for `average`; a = 0 is the plain log-probability. The coverage penalty adds
    b sum_s log(min(attention that source token s has had, 1)), which is negative (there, equation 14).

    Args:
        end_id: of the target vocabulary.
        width: hypotheses K.
        kept: results of a sentence, best first.
        length_penalty: a.
        length_norm: `gnmt` or `average`.
        coverage_penalty: b.
        stop: `attainable`: when nothing that goes on can still become better than what is kept; `width`: when as many
            as the beam is wide have ended.
    """

    end_id: int
    width: int
    kept: int = 1
    length_penalty: float = 0.0
    length_norm: str = "gnmt"
    coverage_penalty: float = 0.0
    stop: str = "attainable"

    @property
    def attention(self):
        """Whether each step must say where it looked."""
        return bool(self.coverage_penalty)

    def start(self, sentences, room, source_length):
        """Return beams in which only the first hypothesis lives: the others would be its copies."""
        shape = (sentences, self.width)
        first = ops.arange(self.width) > 0
        return Beams(
            tokens=ops.zeros((*shape, room), "int32"),
            last=ops.zeros(shape, "int32"),
            scores=ops.zeros(shape, "float32") + ops.where(first, NEVER, 0.0),
            ancestors=ops.zeros((*shape, room), "int32"),
            coverage=ops.zeros((*shape, source_length if self.attention else 1), "float32"),
            done_tokens=ops.zeros((sentences, self.kept, room), "int32"),
            done_scores=ops.full((sentences, self.kept), NEVER, "float32"),
            done_count=ops.zeros((sentences,), "int32"),
        )

    def extend(self, state, logits, step):
        """Go on with the best continuations; return the next state and which sentences are done (B,)."""
        k, vocab_size = self.width, logits.shape[-1]
        continued = logits + (state.scores - log_normaliser(logits))[..., None]  # (B, K, V)
        scores, places = top_k(ops.reshape(continued, (-1, k * vocab_size)), 2 * k)  # (B, 2K)
        parents, words = places // vocab_size, places % vocab_size
        ends = ops.equal(words, self.end_id)
        coverage = state.coverage if step.attention is None else state.coverage + step.attention

        rank = ops.arange(scores.shape[-1])
        ending = ops.logical_and(ops.logical_and(ends, rank < k), scores > NEVER / 2)[:, :k]
        ended_scores = self._normalised(scores[:, :k], step.age + 1, _rows(coverage, parents[:, :k]))
        ended_tokens = write(_rows(state.tokens, parents[:, :k]), step.age, words[:, :k])
        done = _Done(state.done_tokens, state.done_scores)
        done = done.add(ended_tokens, ops.where(ending, ended_scores, NEVER))
        count = state.done_count + ops.sum(ops.cast(ending, "int32"), axis=-1)

        # The first k that do not end go on: there are enough, since each parent has one candidate that ends.
        order = ops.argsort(ops.where(ends, rank + scores.shape[-1], rank), axis=-1)[:, :k]
        live_scores = ops.take_along_axis(ops.where(ends, NEVER, scores), order, axis=-1)
        parents = ops.take_along_axis(parents, order, axis=-1)
        words = ops.take_along_axis(words, order, axis=-1)
        tokens = write(_rows(state.tokens, parents), step.age, words)
        coverage = _rows(coverage, parents)

        cut = self._normalised(live_scores, step.age + 1, coverage)
        done = done.add(tokens, ops.where(step.last[:, None], cut, NEVER))  # what has no room to end counts as it is
        if self.stop == "attainable":
            enough = done.scores[:, -1] >= self._attainable(live_scores[:, 0], step)
        else:
            enough = count >= k
        state = Beams(
            tokens, words, live_scores, _rows(state.ancestors, parents), coverage, done.tokens, done.scores, count
        )
        return state, ops.logical_or(enough, step.last)

    def results(self, state):
        """Return tokens (B, P, C) and normalised scores (B, P), best first, of sentences that are done."""
        return state.done_tokens, state.done_scores

    def _penalty(self, length):
        return _penalty(length, self.length_penalty, self.length_norm)

    def _normalised(self, scores, length, coverage):
        scores = scores / self._penalty(length)[:, None]
        if self.coverage_penalty:
            attended = ops.log(ops.clip(coverage, LEAST_ATTENTION, 1.0))
            scores = scores + self.coverage_penalty * ops.sum(attended, axis=-1)
        return scores

    def _attainable(self, scores, step):
        """Bound what the best of the living (B,) can become: no more is lost, and the length is the kindest one."""
        return scores / self._penalty(step.limit)


class _Done(NamedTuple):
    """The best results so far, best first."""

    tokens: Any  # (B, P, C)
    scores: Any  # (B, P)

    def add(self, tokens, scores):
        """Take in candidates (B, K, C) with scores (B, K); keep the P best of all."""
        kept = self.scores.shape[-1]
        all_tokens = ops.concatenate([self.tokens, tokens], axis=1)
        all_scores = ops.concatenate([self.scores, scores], axis=1)
        scores, places = top_k(all_scores, kept)
        return _Done(_rows(all_tokens, places), scores)


def write(tokens, age, ids):
    """Put `ids` (B, K) at place `age` (B,) of `tokens` (B, K, C)."""
    here = ops.equal(ops.arange(tokens.shape[-1], dtype="int32"), age[:, None])  # (B, C)
    return ops.where(here[:, None], ids[..., None], tokens)


def _penalty(length, strength, norm):
    """Return what scores of results of `length` tokens, their end token included, are divided by."""
    length = ops.cast(length, "float32")
    return ((5.0 + length) / 6.0 if norm == "gnmt" else length) ** strength


def _rows(x, places):
    """Pick rows of `x` (B, K, ...) by `places` (B, R)."""
    return ops.take_along_axis(x, places[..., None], axis=1)
