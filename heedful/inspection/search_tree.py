"""Greedy search and beam search with everything that they considered: the tree of all hypotheses.

A search here reads the whole prefix again at each step, with any heads off; `heedful.decoding` is the fast one.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from heedful.config import DecodeConfig
from heedful.core.special_tokens import END_ID
from heedful.decoding.strategies import length_divisor
from heedful.inspection.reading import Head, Reader, Variant

IMPOSSIBLE_SCORE = -1e9


class Written(NamedTuple):
    """A token that greedy search has written."""

    id: int
    logp: float
    """In nats."""


@dataclasses.dataclass
class Node:
    """A token that a search considered."""

    id: int
    parent: int
    """Number of the node before it; -1 for the root."""
    logp: float
    """Of the token, in nats."""
    score: float
    """Of the hypothesis up to it: the sum of its `logp`."""
    step: int
    state: str
    """`kept`, `ended` or `pruned`."""


@dataclasses.dataclass
class Result:
    """A hypothesis that has ended."""

    ids: list[int]
    score: float
    """Normalised by length."""
    node: int


@dataclasses.dataclass
class _Live:
    """A hypothesis that is still written."""

    ids: list[int]
    score: float
    node: int


class TreeSearch:
    """A search for one source.

    Args:
        reader: a `Reader` of a model that writes text.
        decode: its settings: limits of length, `length_penalty`, `length_norm` and `stop`.
        forbidden: ids that are never written.
        source: ids.
        prefix: ids with which the result begins.
        off: heads that are switched off.
        tokens: maximum to write; 0: as the settings say.
    """

    def __init__(
        self, reader: Reader, decode: DecodeConfig, forbidden: Sequence[int], source: Sequence[int],
        prefix: Sequence[int] = (), off: frozenset[Head] = frozenset(), tokens: int = 0,
    ):  # fmt: skip
        self.reader, self.decode, self.forbidden = reader, decode, list(forbidden)
        self.source, self.prefix, self.off = list(source), list(prefix), off
        limit = reader.written_limit(source, decode)
        self.limit = min(tokens, limit) if tokens else limit
        self.min_length = max(decode.min_length, int(np.ceil(decode.min_ratio * len(source))))

    def greedy(self) -> Iterator[Written]:
        """Yield each token that is written, the end token last."""
        ids = list(self.prefix)
        while len(ids) < self.limit:
            scores = self._next([ids])[0]
            token = int(np.argmax(scores))
            yield Written(token, float(scores[token]))
            if token == END_ID:
                return
            ids.append(token)

    def beam(self, width: int) -> tuple[list[Node], list[Result]]:
        """Return the tree of a beam search, and its results, best first."""
        nodes, done = [Node(-1, -1, 0.0, 0.0, -1, "kept")], list[Result]()
        live, ended = [_Live(self.prefix, 0.0, 0)], 0
        for age in range(len(self.prefix), self.limit):
            following: list[_Live] = []
            for rank, (hypothesis, token, logp) in enumerate(self._candidates(live, width)):
                node = Node(token, hypothesis.node, logp, hypothesis.score + logp, age, "pruned")
                nodes.append(node)
                if token == END_ID and rank < width:
                    node.state, ended = "ended", ended + 1
                    done.append(Result(hypothesis.ids, node.score / self._divisor(age + 1), len(nodes) - 1))
                elif token != END_ID and len(following) < width:
                    node.state = "kept"
                    following.append(_Live([*hypothesis.ids, token], node.score, len(nodes) - 1))
            last = age + 1 >= self.limit
            if last:
                done += [Result(one.ids, one.score / self._divisor(age + 1), one.node) for one in following]
            done = sorted(done, key=lambda result: -result.score)[:width]
            if last or self._finished(done, following, ended, width):
                break
            live = following
        return nodes, done

    def _finished(self, done, following, ended, width):
        """Return whether no live hypothesis can become one of the results."""
        if self.decode.stop == "width":
            return ended >= width
        return len(done) == width and done[-1].score >= following[0].score / self._divisor(self.limit)

    def _divisor(self, length):
        return float(length_divisor(length, self.decode.length_penalty, self.decode.length_norm))

    def _candidates(self, live, width):
        """Return the 2 x width most likely continuations of all hypotheses: (hypothesis, token, logp)."""
        candidates = []
        for hypothesis, scores in zip(live, self._next([one.ids for one in live]), strict=True):
            best = np.argsort(-scores, kind="stable")[: 2 * width]
            candidates += [(hypothesis, int(token), float(scores[token])) for token in best]
        return sorted(candidates, key=lambda one: -(one[0].score + one[2]))[: 2 * width]

    def _next(self, prefixes):
        """Return the log-probabilities (B, V) of the tokens after some prefixes of the same length.

        A token that may not follow is impossible; the others keep the probabilities that the model gives them, summed
        over those that may.
        """
        scores = self.reader.next_scores([Variant(self.source, ids, self.off) for ids in prefixes]).astype(np.float64)
        scores[:, self.forbidden] = IMPOSSIBLE_SCORE
        if len(prefixes[0]) < self.min_length:
            scores[:, END_ID] = IMPOSSIBLE_SCORE
        top = scores.max(axis=-1, keepdims=True)
        return scores - top - np.log(np.exp(scores - top).sum(axis=-1, keepdims=True))
