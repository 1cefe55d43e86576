"""The training pairs that share most rare tokens with a text, by BM25 (Robertson and Zaragoza 2009)."""

import itertools
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from heedful.core.errors import InputError
from heedful.data.tokenizer import Tokenizer
from heedful.inspection.run_text import text_to_show
from heedful.runs.run import Run

PAIRS = 500_000  # the first pairs of a training text are indexed, up to this number
SATURATION, LENGTH_SHARE = 1.2, 0.75  # k1 and b of BM25


class NearPair(NamedTuple):
    """A training pair."""

    source: str
    target: str
    similarity: float
    """Its BM25 score beside that of the text itself: 1 for the same tokens."""


class NearestPairs:
    """An index of pairs by the tokens of their sources.

    Args:
        pairs: (source, target).
        tokenizer: of the sources.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]], tokenizer: Tokenizer):
        self.pairs, self.tokenizer = list(pairs), tokenizer
        texts = tokenizer.encode_batch(source for source, _ in self.pairs)
        self.lengths = np.array([len(ids) for ids in texts], np.int64)
        tokens = np.fromiter(itertools.chain.from_iterable(texts), np.int64, int(self.lengths.sum()))
        rows = np.repeat(np.arange(len(texts)), self.lengths)
        both, self.counts = np.unique(tokens * max(len(texts), 1) + rows, return_counts=True)
        owners, self.rows = np.divmod(both, max(len(texts), 1))
        self.starts = np.searchsorted(owners, np.arange(len(tokenizer) + 1))  # of the rows of each token

    @classmethod
    def of(cls, run: Run) -> "NearestPairs":
        """Return the index of a run's training text; `InputError` if it is not to be shown, or has no pairs."""
        corpus = text_to_show(run)["train"]
        pairs = (pair for item in itertools.islice(corpus, PAIRS) if (pair := run.task.pair_of(item)))
        index = cls(pairs, run.tokenizer)
        if not index.pairs:
            raise InputError(f"{corpus.name} has no pairs of texts.")
        return index

    def __call__(self, text: str, count: int = 5) -> list[NearPair]:
        """Return up to `count` pairs that share tokens with a text, the most similar first."""
        ids = self.tokenizer.encode(text)
        scores, length = np.zeros(len(self.pairs)), 0.0
        for token, repeated in zip(*np.unique(np.array(ids, np.int64), return_counts=True), strict=True):
            part = slice(self.starts[token], self.starts[token + 1])
            rows, rarity = self.rows[part], self._rarity(part.stop - part.start)
            scores[rows] += rarity * self._weight(self.counts[part], self.lengths[rows])
            length += rarity * float(self._weight(repeated, len(ids)))
        best = np.argsort(-scores, kind="stable")[:count]
        return [
            NearPair(source, target, round(scores[row] / length, 3))
            for row in best
            if scores[row] > 0
            for source, target in [self.pairs[row]]
        ]

    def _rarity(self, texts):
        return np.log1p((len(self.pairs) - texts + 0.5) / (texts + 0.5))

    def _weight(self, counts, lengths):
        relative = 1 - LENGTH_SHARE + LENGTH_SHARE * lengths / max(self.lengths.mean(), 1)
        return counts * (SATURATION + 1) / (counts + SATURATION * relative)
