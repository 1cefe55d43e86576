"""Training batches from encoded text: the common base class, and examples from sentence pairs.

Axes: B batch, S source length, T target length.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from heedful.core.special_tokens import END_ID, START_ID
from heedful.data.batches import BatchPlan, Shape
from heedful.data.encoded import EncodedPairs
from heedful.data.order import SCORING_MASKS, SEGMENTATIONS, TRAINING_MASKS, random_numbers
from heedful.data.ragged import Ragged


def source_ids(source: Ragged, rows: Sequence[int] | np.ndarray, length: int) -> np.ndarray:
    """Return source sequences with their end token, padded: (len(rows), length)."""
    return _with_end(source.padded(rows, length), rows)


def teacher_forcing_batch(pairs: EncodedPairs, rows: np.ndarray, shape: tuple[int, int]) -> dict[str, np.ndarray]:
    """Return a batch for teacher forcing (Vaswani et al. 2017, section 3.1: outputs shifted right by one).

    Args:
        pairs: `EncodedPairs`.
        rows: indices of the pairs; -1 yields an empty row with weight 0.
        shape: (source length, target length), each with room for one more token than the longest sequence.

    Returns:
        source (B, S), target (B, T) that starts with the start token, labels (B, T) that end with the end token, and
        float32 weights (B, T), 1 where a label is real.
    """
    source_length, target_length = shape
    labels = _with_end(pairs.target.padded(rows, target_length), rows)
    target = np.zeros_like(labels)
    target[:, 0] = START_ID
    target[:, 1:] = labels[:, :-1]
    target[target == END_ID] = 0  # the end token is never an input: nothing follows it
    return {
        "source": source_ids(pairs.source, rows, source_length),
        "target": target,
        "labels": labels,
        "weights": (labels != 0).astype(np.float32),
    }


def enclosed(pieces: Ragged, rows: np.ndarray, length: int) -> np.ndarray:
    """Return pieces enclosed in start and end tokens, padded: (len(rows), length); row -1 is empty."""
    ids = np.zeros((len(rows), length), np.int32)
    ids[:, 1:-1] = pieces.padded(rows, length - 2)
    real = np.asarray(rows) >= 0
    ids[real, 0] = START_ID
    ids[np.flatnonzero(real), pieces.lengths[np.asarray(rows)[real]] + 1] = END_ID
    return ids


def plan_pieces(
    pieces: Ragged, *, batch_tokens: int, batch_sentences: int = 0, max_shapes: int = 10, seed: int = 0
) -> BatchPlan:
    """Plan the batches of single texts, `Ragged` ids without start and end tokens."""
    lengths = pieces.lengths + 2
    options = {"batch_tokens": batch_tokens, "batch_sentences": batch_sentences, "max_shapes": max_shapes}
    return BatchPlan(np.zeros_like(lengths), lengths, seed=seed, **options)


class Examples(Protocol):
    """Batches to train on or to score. Batch n is a pure function of the seed and n. `str` describes the examples."""

    def batch(self, number: int) -> dict[str, np.ndarray]:
        """Return batch `number`, counted from 0 through all epochs."""

    def one_pass(self) -> Iterator[dict[str, np.ndarray]]:
        """Yield batches that contain every text exactly once; they are the same on every call."""

    def tokens(self, number: int) -> int:
        """Return the number of tokens in batch `number` without padding; for pairs, the target tokens only."""

    def shape(self, number: int) -> tuple[int, ...]:
        """Return the shape of batch `number`: rows, then the lengths of its sides."""

    def first_of_each_shape(self) -> list[int]:
        """Return the number of the first batch of every shape."""

    @property
    def batches_per_epoch(self) -> float:
        """Mean number of batches per pass over all texts."""


class PlannedExamples:
    """The batches of a `BatchPlan` as arrays; the `Examples` of most tasks."""

    def __init__(self, plan: BatchPlan):
        self.plan = plan

    def read(self, rows: np.ndarray, shape: Shape, draw: tuple[int, ...]) -> dict[str, np.ndarray]:
        """Return the arrays of a batch: texts `rows` (-1: empty) in a `Shape`; `draw` seeds its random numbers."""
        raise NotImplementedError

    def batch(self, number: int) -> dict[str, np.ndarray]:
        shape, rows = self.plan.batch(number)
        return self.read(rows, shape, (TRAINING_MASKS, number))

    def one_pass(self) -> Iterator[dict[str, np.ndarray]]:
        for number, (shape, rows) in enumerate(self.plan.one_pass()):
            yield self.read(rows, shape, (SCORING_MASKS, number))

    def tokens(self, number: int) -> int:
        return self.plan.target_tokens(number)

    def shape(self, number: int) -> tuple[int, ...]:
        shape, _ = self.plan.batch(number)
        return (shape.sentences, *shape.lengths)

    def first_of_each_shape(self) -> list[int]:
        return self.plan.first_of_each_shape()

    @property
    def batches_per_epoch(self) -> float:
        return self.plan.batches_per_epoch

    def __str__(self) -> str:
        return str(self.plan)


class PairExamples(PlannedExamples):
    """Examples from sentence pairs, which may have several segmentations: each batch draws one for each pair.

    Args:
        pairs: `EncodedPairs`.
        plan: a `BatchPlan`.
        seed: of the draws.
    """

    def __init__(self, pairs: EncodedPairs, plan: BatchPlan, seed: int = 0):
        super().__init__(plan)
        self.pairs, self.seed = pairs, seed

    def drawn(self, pairs: np.ndarray, draw: tuple[int, ...]) -> np.ndarray:
        """Return the indices of pairs, each in a version that is drawn; -1 stays."""
        if self.pairs.versions == 1:
            return pairs
        versions = random_numbers(self.seed, SEGMENTATIONS, *draw).integers(self.pairs.versions, size=np.shape(pairs))
        return np.where(np.asarray(pairs) < 0, pairs, pairs + versions * self.pairs.filtered.kept)


class TranslationExamples(PairExamples):
    """Pairs for teacher forcing, as `teacher_forcing_batch` returns them."""

    def read(self, rows: np.ndarray, shape: Shape, draw: tuple[int, ...]) -> dict[str, np.ndarray]:
        return teacher_forcing_batch(self.pairs, self.drawn(rows, draw), shape.lengths)


class PackedPairs(PairExamples):
    """Pairs for teacher forcing, packed into rows; segment numbers keep a row's pairs from attending to each other.

    The packing is fixed; the order of the rows changes with each pass.

    Args:
        pairs: `EncodedPairs`.
        rows: indices of the pairs in each row, as returned by `pack`.
        plan: a `BatchPlan` over the total length of each row on each side, end tokens included.
        seed: of the draws of segmentations.
    """

    def __init__(self, pairs: EncodedPairs, rows: Ragged, plan: BatchPlan, seed: int = 0):
        super().__init__(pairs, plan, seed)
        self.rows = rows

    def read(self, rows: np.ndarray, shape: Shape, draw: tuple[int, ...]) -> dict[str, np.ndarray]:
        """Return the arrays of `teacher_forcing_batch`, and segments and positions of each side: (B, S) or (B, T)."""
        counts = np.where(np.asarray(rows) < 0, 0, self.rows.lengths[rows])
        pairs = self.rows.padded(rows, counts.max())
        there = np.arange(pairs.shape[1]) < counts[:, None]
        pairs = self.drawn(pairs, draw)
        batch = _laid_out("source", self.pairs.source, pairs, there, shape.source_length)
        batch |= _laid_out("target", self.pairs.target, pairs, there, shape.target_length)
        labels = batch["target"]
        before = np.concatenate([np.zeros_like(labels[:, :1]), labels[:, :-1]], axis=1)
        batch["target"] = np.where(batch["target_positions"] == 0, START_ID, before).astype(np.int32)
        batch["target"][labels == 0] = 0
        return batch | {"labels": labels, "weights": (labels != 0).astype(np.float32)}

    def __str__(self) -> str:
        return f"{self.pairs.filtered.kept:,} pairs in {len(self.rows):,} rows\n{self.plan}"


def _laid_out(side, texts, pairs, there, length):
    """Concatenate one side of the pairs of each row: ids with their end tokens, segments, positions.

    Args:
        side: `source` or `target`, which names the arrays.
        texts: `Ragged` ids of that side.
        pairs: indices of the pairs in each row (B, P).
        there: which of these are real, not padding (B, P).
        length: length of the rows.
    """
    sizes = np.where(there, texts.lengths[pairs] + 1, 0)
    ends = sizes.cumsum(axis=1)
    places = np.arange(length)
    real = places < ends[:, -1:]
    # The index in the row of the pair at each position (B, length): the number of pairs that end before it.
    numbers = np.where(real, (places[:, None] >= ends[:, None, :]).sum(axis=-1), 0)
    positions = np.where(real, places - np.take_along_axis(ends - sizes, numbers, axis=1), 0)
    chosen = np.take_along_axis(pairs, numbers, axis=1)
    flat = np.minimum(texts.offsets[chosen] + positions, len(texts.flat) - 1)
    ids = np.where(positions == texts.lengths[chosen], END_ID, np.asarray(texts.flat[flat]))
    arrays = {side: ids, f"{side}_segments": numbers + 1, f"{side}_positions": positions}
    return {name: np.where(real, array, 0).astype(np.int32) for name, array in arrays.items()}


def _with_end(ids, rows):
    real = np.asarray(rows) >= 0
    lengths = (ids != 0).sum(axis=1)
    ids[np.flatnonzero(real), lengths[real]] = END_ID
    return ids
