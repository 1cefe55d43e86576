"""Batch planning: length buckets planned before training, and an order that depends only on the seed.

Axes: K shapes, S source length, T target length (both with their end token).
"""

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from heedful.data.order import BATCHES, PAIRS, cycle, random_numbers

# A padded target token costs about twice as much as a source token, due to cross-attention and the output projection.
TARGET_COST = 2
PIECE = 1_000_000  # pairs that are looked at at a time, so that planning needs little memory
EDGES = 48  # length limits tried on each axis; corpora with more distinct lengths are planned on quantiles


@dataclass(frozen=True)
class Shape:
    """A static batch shape, and the pairs of the corpus that are batched in it."""

    sentences: int  # rows of a batch
    source_length: int
    target_length: int
    rows: np.ndarray  # indices of the pairs

    @property
    def lengths(self) -> tuple[int, int]:
        return self.source_length, self.target_length


class BatchPlan:
    """An endless sequence of batches over a corpus; batch n is a pure function of (seed, n).

    Each shape cycles through its sentences, reshuffled on every pass, and yields as many batches per epoch as its
    sentences fill. No batch is padded with empty rows, and no sentence is left out.

    Args:
        source_lengths, target_lengths: lengths of each pair, end token included; single texts have source length 0.
        batch_tokens: tokens per batch on its longer side, padding included.
        batch_sentences: sentences per batch; replaces `batch_tokens` if not 0.
        max_shapes: maximum number of shapes K.
        shape_price: padded tokens per epoch that one more shape must save to be worth compiling.
        seed: seed of the order.
    """

    def __init__(
        self,
        source_lengths: Sequence[int] | np.ndarray,
        target_lengths: Sequence[int] | np.ndarray,
        *,
        batch_tokens: int,
        batch_sentences: int = 0,
        max_shapes: int = 10,
        shape_price: float = 0,
        seed: int = 0,
    ):
        source_lengths, target_lengths = np.asarray(source_lengths), np.asarray(target_lengths)
        self.seed = seed
        self.source_lengths, self.target_lengths = source_lengths, target_lengths
        self.shapes: list[Shape] = []
        for source, target, rows in cut_into_buckets(source_lengths, target_lengths, max_shapes, shape_price):
            sentences = batch_sentences or max(1, batch_tokens // max(source, target))
            self.shapes.append(Shape(sentences, source, target, rows))

    def batch(self, number: int) -> "tuple[Shape, np.ndarray]":
        """Return batch `number` as (shape, indices of its pairs)."""
        epoch, within = self._locate(number)
        index, turn = self._order(epoch)[within]
        shape = self.shapes[index]
        order = functools.partial(self._shuffled, index)
        return shape, cycle(order, len(shape.rows), turn * shape.sentences, shape.sentences)

    def first_of_each_shape(self) -> list[int]:
        """Return the number of the first batch of every shape."""
        return [self._first(index) for index in range(len(self.shapes))]

    def target_tokens(self, number: int) -> int:
        """Return how many real target tokens batch `number` has."""
        return int(self.target_lengths[self.batch(number)[1]].sum())

    @property
    def batches_per_epoch(self) -> float:
        """Mean number of batches per pass over all pairs."""
        return sum(len(shape.rows) / shape.sentences for shape in self.shapes)

    @property
    def padding_share(self) -> float:
        """Share of all source and target positions that are padding."""
        positions = sum(len(shape.rows) * (shape.source_length + shape.target_length) for shape in self.shapes)
        return 1 - (self.source_lengths.sum() + self.target_lengths.sum()) / positions

    def one_pass(self) -> "Iterator[tuple[Shape, np.ndarray]]":
        """Yield (shape, indices) with every pair exactly once; index -1 fills the last batch of a shape."""
        for shape in self.shapes:
            for start in range(0, len(shape.rows), shape.sentences):
                rows = np.full(shape.sentences, -1)
                chosen = shape.rows[start : start + shape.sentences]
                rows[: len(chosen)] = chosen
                yield shape, rows

    def __str__(self) -> str:
        tokens, two_sided = self.target_lengths.sum() / self.batches_per_epoch, self.source_lengths.any()
        target = "target " if two_sided else ""
        lines = [
            f"{len(self.shapes)} batch shape{'s' * (len(self.shapes) > 1)}, {self.padding_share:.1%} padding, "
            f"{self.batches_per_epoch:.1f} batches an epoch, {tokens:,.0f} {target}tokens a batch"
        ]
        for shape in self.shapes:
            lengths = f"{shape.source_length:3d} source x {shape.target_length:3d} target"
            lines.append(
                f"  {shape.sentences:5d} rows x {lengths if two_sided else f'{shape.target_length:3d} tokens'}"
                f"   {len(shape.rows) / len(self.target_lengths):6.1%} of the text"
            )
        return "\n".join(lines)

    def _before(self, index, epoch):
        """Return how many batches a shape has yielded before an epoch."""
        shape = self.shapes[index]
        return epoch * len(shape.rows) // shape.sentences

    def _begin(self, epoch):
        """Return the number of an epoch's first batch."""
        return sum(self._before(index, epoch) for index in range(len(self.shapes)))

    def _locate(self, number):
        """Return (epoch, number within it)."""
        low, high = 0, int(number / self.batches_per_epoch) + len(self.shapes) + 2
        while self._begin(high) <= number:
            high *= 2
        while high - low > 1:  # the last epoch that begins at or before `number`
            middle = (low + high) // 2
            low, high = (middle, high) if self._begin(middle) <= number else (low, middle)
        return low, number - self._begin(low)

    def _first(self, index):
        """Return the number of a shape's first batch, in the first epoch by the end of which its rows fill a batch."""
        shape = self.shapes[index]
        epoch = -(-shape.sentences // len(shape.rows)) - 1
        return self._begin(epoch) + self._order(epoch).index((index, 0))

    @functools.lru_cache(maxsize=2)  # noqa: B019 - a plan lives as long as its training
    def _order(self, epoch):
        turns = [
            (index, turn)
            for index in range(len(self.shapes))
            for turn in range(self._before(index, epoch), self._before(index, epoch + 1))
        ]
        order = random_numbers(self.seed, BATCHES, epoch).permutation(len(turns))
        return [turns[i] for i in order]

    @functools.lru_cache(maxsize=24)  # noqa: B019 - a batch may span two passes over the rows of its shape
    def _shuffled(self, index, pass_number):
        return random_numbers(self.seed, PAIRS, index, pass_number).permutation(self.shapes[index].rows)


def cut_into_buckets(
    source_lengths: np.ndarray, target_lengths: np.ndarray, max_shapes: int, shape_price: float = 0
) -> Any:
    """Cut the plane of (source length, target length) into at most `max_shapes` buckets with the least padding.

    Dynamic programming cuts the plane into bands of target lengths, and each band into ranges of source lengths; among
    such cuts the result is optimal for the length limits tried. A bucket costs its number of sentences times its padded
    lengths, target tokens weighted by `TARGET_COST`, plus `shape_price`.

    Returns:
        A list of (source length, target length, indices of the pairs), without empty buckets.
    """
    source_edges, target_edges = _edges(source_lengths), _edges(target_lengths)
    counts = np.zeros((len(target_edges), len(source_edges)))
    bins = np.empty((len(source_lengths), 2), np.uint8)  # of each pair: target, source
    for start in range(0, len(bins), PIECE):
        piece = bins[start : start + PIECE]
        piece[:, 0] = np.searchsorted(target_edges, target_lengths[start : start + PIECE])
        piece[:, 1] = np.searchsorted(source_edges, source_lengths[start : start + PIECE])
        np.add.at(counts, (piece[:, 0], piece[:, 1]), 1)
    below = np.concatenate([np.zeros((1, len(source_edges))), counts.cumsum(0)])  # (target bin + 1, source bin)

    size = len(target_edges)
    costs, notes = {}, {}  # of each band of target bins low .. high-1
    for low, high in itertools.combinations(range(size + 1), 2):
        price = source_edges + TARGET_COST * target_edges[high - 1]
        costs[low, high], notes[low, high] = _cut_line(below[high] - below[low], price, max_shapes, shape_price)
    bucket_of, number = np.zeros(counts.shape, np.int32), 0
    for low, high, count in _best_bands(costs, size):
        for left, right in reversed(list(itertools.pairwise(_edges_noted(notes[low, high], count)))):
            bucket_of[low:high, left:right] = number
            number += 1
    buckets = bucket_of[bins[:, 0], bins[:, 1]]
    members = (np.flatnonzero(buckets == each).astype(np.int32) for each in range(number))
    return [(int(source_lengths[rows].max()), int(target_lengths[rows].max()), rows) for rows in members if len(rows)]


def _edges(lengths):
    """Return the length limits to try: all distinct lengths, or their quantiles if there are too many."""
    counts = np.zeros(int(lengths.max()) + 1, np.int64)
    for start in range(0, len(lengths), PIECE):
        piece = np.bincount(lengths[start : start + PIECE])
        counts[: len(piece)] += piece
    distinct = np.flatnonzero(counts)
    if len(distinct) <= EDGES:
        return distinct
    ranks = np.ceil(np.linspace(0, 1, EDGES + 1)[1:] * (len(lengths) - 1)).astype(np.int64)
    return np.unique(np.searchsorted(counts.cumsum(), ranks, side="right"))


def _cut_line(counts, price, max_cuts, bucket_price):
    """Cut bins (G,) into m ranges at minimal cost, for each m up to `max_cuts`.

    A range costs its number of sentences times the price of its last bin, plus `bucket_price`. Returns the cost for
    each m (max_cuts + 1,), infinite for m = 0, and backpointers for `_edges_noted`.
    """
    size = len(counts)
    total = np.concatenate([[0], counts.cumsum()])
    # cost[i, j]: bins i .. j-1 as one range
    cost = (total[None, :] - total[:, None]) * np.concatenate([[0], price])[None, :] + bucket_price
    cost[np.tril_indices(size + 1)] = np.inf
    best = np.full((max_cuts + 1, size + 1), np.inf)
    best[0, 0] = 0
    begins = np.zeros((max_cuts + 1, size + 1), np.int64)  # [m, j]: of the last of m ranges over bins 0 .. j-1
    for m in range(1, max_cuts + 1):
        candidates = best[m - 1][:, None] + cost
        begins[m] = candidates.argmin(0)
        best[m] = candidates.min(0)
    return best[:, size], begins


def _edges_noted(begins, m):
    """Return the m + 1 edges of the best m ranges."""
    ends = [begins.shape[1] - 1]
    for ranges in range(m, 0, -1):
        ends.append(int(begins[ranges, ends[-1]]))
    return ends[::-1]


def _best_bands(costs, size):
    """Choose bands that cover `size` bins, and the number of buckets of each, at minimal cost.

    Args:
        costs: cost of each band (low, high) by its number of buckets (K + 1,).
        size: number of bins.

    Returns:
        A list of (low, high, number of buckets), in order.
    """
    numbers = np.arange(len(costs[0, 1]))
    rest = numbers[:, None] - numbers  # buckets left for the bins below, by (all, those of a band)
    best = np.full((size + 1, len(numbers)), np.inf)  # by bins covered, buckets used
    best[0, 0] = 0
    choice = np.zeros((size + 1, len(numbers), 2), np.int64)  # where the last band begins, and how many buckets it has
    for high in range(1, size + 1):
        for low in range(high):
            candidates = np.where(rest < 0, np.inf, best[low][rest]) + costs[low, high]
            lowest, buckets = candidates.min(1), candidates.argmin(1)
            better = np.flatnonzero(lowest < best[high])
            best[high, better] = lowest[better]
            choice[high, better] = np.stack([np.full(len(better), low), buckets[better]], axis=1)
    bands = []
    high, used = size, int(best[size].argmin())
    while high:
        low, buckets = map(int, choice[high, used])
        bands.append((low, high, buckets))
        high, used = low, used - buckets
    return bands[::-1]
