"""Batches from two texts: the one to learn, and general text that keeps a trained model from forgetting."""

from collections.abc import Iterator

import numpy as np

from heedful.data.examples import Examples


class MixedExamples:
    """Training `Examples` of which a fixed share of the batches comes from a second text, evenly spread.

    Args:
        own: the examples to learn.
        general: the examples of the second text.
        share: fraction of the batches that come from `general`, above 0 and below 1.
    """

    def __init__(self, own: Examples, general: Examples, share: float):
        self.own, self.general, self.share = own, general, share

    def _source(self, number: int) -> tuple[Examples, int]:
        """Return where batch `number` comes from, and its number there."""
        before, after = (int(count * self.share) for count in (number, number + 1))
        return (self.general, before) if after > before else (self.own, number - before)

    def batch(self, number: int) -> dict[str, np.ndarray]:
        examples, own_number = self._source(number)
        return examples.batch(own_number)

    def one_pass(self) -> Iterator[dict[str, np.ndarray]]:
        """Yield the batches of the text to learn."""
        return self.own.one_pass()

    def tokens(self, number: int) -> int:
        examples, own_number = self._source(number)
        return examples.tokens(own_number)

    def shape(self, number: int) -> tuple[int, ...]:
        examples, own_number = self._source(number)
        return examples.shape(own_number)

    def first_of_each_shape(self) -> list[int]:
        wanted = [
            {examples.shape(number) for number in examples.first_of_each_shape()}
            for examples in (self.own, self.general)
        ]
        missing, found, number = wanted[0] | wanted[1], [], 0
        while missing:
            if (shape := self.shape(number)) in missing:
                missing.remove(shape)
                found.append(number)
            number += 1
        return found

    @property
    def batches_per_epoch(self) -> float:
        """Mean number of batches, of both texts, per pass over the text to learn."""
        return self.own.batches_per_epoch / (1 - self.share)

    def __str__(self):
        return f"{self.own}\ngeneral text, {self.share:.0%} of the batches: {self.general}"
