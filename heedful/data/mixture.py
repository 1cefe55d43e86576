"""Batches from two texts, each with a fixed share of them."""

import itertools
from collections.abc import Iterator

import numpy as np

from heedful.data.examples import Examples


class MixedExamples:
    """Training `Examples` of which a fixed share of the batches comes from a second text, evenly spread.

    Args:
        own: the examples of the first text.
        other: the examples of the second text.
        share: fraction of the batches that come from `other`, above 0 and below 1.
        name: name of the second text in messages.
        whole: whether an epoch has as many batches as both texts; otherwise it is a pass over the first one, with the
            share of the second.
    """

    def __init__(self, own: Examples, other: Examples, share: float, name: str = "general text", whole: bool = False):
        self.own, self.other, self.share, self.name, self.whole = own, other, share, name, whole

    def _source(self, number: int) -> tuple[Examples, int]:
        """Return where batch `number` comes from, and its number there."""
        before, after = (int(count * self.share) for count in (number, number + 1))
        return (self.other, before) if after > before else (self.own, number - before)

    def batch(self, number: int) -> dict[str, np.ndarray]:
        examples, own_number = self._source(number)
        return examples.batch(own_number)

    def one_pass(self) -> Iterator[dict[str, np.ndarray]]:
        """Yield the batches of the first text; of both, if an epoch has both."""
        return itertools.chain(self.own.one_pass(), self.other.one_pass() if self.whole else ())

    def tokens(self, number: int) -> int:
        examples, own_number = self._source(number)
        return examples.tokens(own_number)

    def shape(self, number: int) -> tuple[int, ...]:
        examples, own_number = self._source(number)
        return examples.shape(own_number)

    def first_of_each_shape(self) -> list[int]:
        first: dict[tuple[int, ...], int] = {}
        for examples in (self.own, self.other):
            for own_number in examples.first_of_each_shape():
                number, shape = self._place(examples, own_number), examples.shape(own_number)
                first[shape] = min(number, first.get(shape, number))
        return sorted(first.values())

    def _place(self, examples, own_number):
        """Return the number of the batch that has the number `own_number` in one of the texts."""
        share = self.share if examples is self.other else 1 - self.share
        number = max(0, int(own_number / share) - 2)
        while self._source(number) != (examples, own_number):
            number += 1
        return number

    @property
    def batches_per_epoch(self) -> float:
        """Mean number of batches of an epoch."""
        if self.whole:
            return self.own.batches_per_epoch + self.other.batches_per_epoch
        return self.own.batches_per_epoch / (1 - self.share)

    def __str__(self) -> str:
        return f"{self.own}\n{self.name}, {self.share:.0%} of the batches: {self.other}"
