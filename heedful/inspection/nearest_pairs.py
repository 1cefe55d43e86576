"""The training pairs that share the most rare tokens with a text, by BM25 (Robertson and Zaragoza 2009)."""

import itertools
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from heedful.core.errors import InputError
from heedful.data.tokenizer import Tokenizer
from heedful.inspection.run_text import text_to_show
from heedful.runs.run import Run

MAX_PAIRS = 500_000  # only the first pairs of the training text are indexed
SATURATION, LENGTH_NORMALIZATION = 1.2, 0.75  # k1 and b of BM25


class NearPair(NamedTuple):
    """A training pair."""

    source: str
    target: str
    similarity: float
    """Its BM25 score divided by the score of the text against itself: 1 for the same tokens."""


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
        keys, self.counts = np.unique(tokens * max(len(texts), 1) + rows, return_counts=True)
        tokens_of_keys, self.rows = np.divmod(keys, max(len(texts), 1))
        self.starts = np.searchsorted(
            tokens_of_keys, np.arange(len(tokenizer) + 1)
        )  # where the rows of each token start

    @classmethod
    def of(cls, run: Run) -> "NearestPairs":
        """Return the index of a run's training text; `InputError` if it is not to be shown, or has no pairs."""
        corpus = text_to_show(run)["train"]
        pairs = (pair for item in itertools.islice(corpus, MAX_PAIRS) if (pair := run.task.pair_of(item)))
        index = cls(pairs, run.tokenizer)
        if not index.pairs:
            raise InputError(f"{corpus.name} has no pairs of texts.")
        return index

    def __call__(self, text: str, count: int = 5) -> list[NearPair]:
        """Return up to `count` pairs that share tokens with a text, the most similar first."""
        ids = self.tokenizer.encode(text)
        scores, self_score = np.zeros(len(self.pairs)), 0.0
        for token, query_count in zip(*np.unique(np.array(ids, np.int64), return_counts=True), strict=True):
            postings = slice(self.starts[token], self.starts[token + 1])
            rows, idf = self.rows[postings], self._idf(postings.stop - postings.start)
            scores[rows] += idf * self._weight(self.counts[postings], self.lengths[rows])
            self_score += idf * float(self._weight(query_count, len(ids)))
        best = np.argsort(-scores, kind="stable")[:count]
        return [
            NearPair(source, target, round(scores[row] / self_score, 3))
            for row in best
            if scores[row] > 0
            for source, target in [self.pairs[row]]
        ]

    def _idf(self, document_frequency):
        return np.log1p((len(self.pairs) - document_frequency + 0.5) / (document_frequency + 0.5))

    def _weight(self, counts, lengths):
        length_factor = 1 - LENGTH_NORMALIZATION + LENGTH_NORMALIZATION * lengths / max(self.lengths.mean(), 1)
        return counts * (SATURATION + 1) / (counts + SATURATION * length_factor)
