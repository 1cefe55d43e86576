"""Constraints on the next token: they change the scores of the vocabulary before a token is chosen.

Axes: B sentences, K hypotheses of each, C capacity in tokens, V vocabulary.
"""

from dataclasses import dataclass
from typing import Any

from keras import ops

from heedful.backend import Tensor
from heedful.decoding.strategies import Number
from heedful.decoding.top_k import MINUS_INFINITY


@dataclass(frozen=True)
class TokenConstraints:
    """The constraints of a search; unset ones cost nothing.

    Args:
        end_id: the end token.
        forbidden: ids that are never chosen.
        min_lengths: minimum number of tokens of each sentence before the end token (W + 1,), or None.
        prefix: tokens that each sentence must begin with (W + 1, P), 0 where it is free, or None. They override the
            other constraints.
        repetition_penalty: a `Number` that divides the positive and multiplies the negative scores of tokens that a
            hypothesis already contains (Keskar et al. 2019, section 4.1); None: no penalty.
        no_repeat_ngram: no sequence of this many tokens occurs twice in a hypothesis; 0: no constraint.
    """

    end_id: int
    forbidden: tuple = ()
    min_lengths: Any = None
    prefix: Any = None
    repetition_penalty: Number | None = None
    no_repeat_ngram: int = 0

    def apply(self, logits: Tensor, tokens: Tensor, age: Tensor, sentence: Tensor) -> Tensor:
        """Return the constrained scores (B, K, V).

        Args:
            logits: (B, K, V) float32.
            tokens: the tokens of each hypothesis (B, K, C), padded with zeros.
            age: number of tokens generated so far (B,).
            sentence: sentence number of each row (B,).
        """
        words, unconstrained = ops.arange(logits.shape[-1], dtype="int32"), logits
        if self.repetition_penalty is not None:
            penalty, inverse = self.repetition_penalty
            penalised = ops.where(logits > 0, logits * inverse, logits * penalty)
            logits = ops.where(_among(tokens, logits.shape[-1]), penalised, logits)
        if self.no_repeat_ngram:
            logits = ops.where(self._would_repeat(tokens, age, logits.shape[-1]), MINUS_INFINITY, logits)
        if self.forbidden:
            banned = ops.any(ops.equal(words[:, None], ops.convert_to_tensor(self.forbidden, "int32")), axis=-1)
            logits = ops.where(banned, MINUS_INFINITY, logits)
        if self.min_lengths is not None:
            early = age < ops.cast(ops.take(self.min_lengths, sentence, axis=0), "int32")  # (B,)
            logits = ops.where(
                ops.logical_and(early[:, None, None], ops.equal(words, self.end_id)), MINUS_INFINITY, logits
            )
        if self.prefix is not None:
            rows = ops.cast(ops.take(self.prefix, sentence, axis=0), "int32")  # (B, P)
            places = ops.arange(rows.shape[1], dtype="int32")
            wanted = ops.sum(ops.where(ops.equal(places, age[:, None]), rows, 0), axis=-1)[:, None, None]  # (B, 1, 1)
            logits = ops.where(wanted > 0, ops.where(ops.equal(words, wanted), unconstrained, MINUS_INFINITY), logits)
        return logits

    def _would_repeat(self, tokens: Tensor, age: Tensor, vocab_size: int) -> Tensor:
        """Return a mask (B, K, V) of the tokens that would complete a repeated n-gram."""
        n, capacity = self.no_repeat_ngram, tokens.shape[-1]
        if capacity < n:
            return ops.zeros((1, 1, 1), "bool")
        matches = ops.ones_like(
            tokens[..., : capacity - n + 1], dtype="bool"
        )  # (B, K, C - n + 1), by the first place of the n-gram
        for offset in range(n - 1):
            # the token `n - 1 - offset` places before the next one
            place = age[:, None, None] - (n - 1) + offset  # (B, 1, 1)
            place = ops.clip(place, 0, capacity - 1)  # the age of an idle slot grows without limit
            place = ops.broadcast_to(place, (*ops.shape(tokens)[:2], 1))
            recent = ops.take_along_axis(tokens, place, axis=-1)
            matches = ops.logical_and(matches, ops.equal(tokens[..., offset : capacity - n + 1 + offset], recent))
        completing = ops.where(matches, tokens[..., n - 1 :], 0)
        written = ops.arange(n - 1, capacity, dtype="int32") < age[:, None, None]
        return _among(ops.where(written, completing, 0), vocab_size)


def _among(tokens: Tensor, vocab_size: int) -> Tensor:
    """Return a mask (B, K, V) of the vocabulary entries, except 0, that occur in `tokens` (B, K, C)."""
    sentences, hypotheses, capacity = ops.shape(tokens)
    rows = ops.repeat(ops.arange(sentences * hypotheses, dtype="int32"), capacity)
    places = (rows * vocab_size + ops.reshape(tokens, (-1,)))[:, None]
    marked = ops.zeros((sentences * hypotheses * vocab_size,), "float32")
    marked = ops.scatter_update(marked, places, ops.ones_like(places[:, 0], dtype="float32"))
    marked = ops.reshape(marked, (sentences, hypotheses, vocab_size))
    return ops.logical_and(marked > 0, ops.arange(vocab_size) > 0)
