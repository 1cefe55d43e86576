"""Examples that are drawn afresh for every batch, so that a model rarely sees one twice."""

import random
from collections.abc import Callable, Iterator

import numpy as np

from heedful.data.encoded import EncodedPairs, Filtered
from heedful.data.examples import teacher_forcing_batch
from heedful.data.ragged import Ragged
from heedful.data.tokenizer import Tokenizer


class FreshPairs:
    """The `Examples` of a source of pairs without end. Batch n is a pure function of the seed and n.

    Args:
        draw: function from a random generator to an endless iterator of pairs of texts.
        source_tokenizer, target_tokenizer: may be the same.
        sentences: pairs in a batch.
        length: number of tokens in every source and target.
        batches_per_epoch: what counts as an epoch, since there is no end.
        seed: seed of the draws.
    """

    def __init__(
        self,
        draw: Callable[[random.Random], Iterator[tuple[str, str]]],
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        sentences: int,
        length: int,
        batches_per_epoch: float,
        seed: int = 0,
    ):
        self._draw, self._tokenizers = draw, (source_tokenizer, target_tokenizer)
        self.sentences, self.length, self.seed = sentences, length, seed
        self._batches_per_epoch = batches_per_epoch

    def batch(self, number: int) -> dict[str, np.ndarray]:
        pairs = self._draw(random.Random(f"{self.seed}/fresh/{number}"))
        sides = zip(*(next(pairs) for _ in range(self.sentences)), strict=True)
        source, target = (
            Ragged.of(tokenizer.encode_batch(side)) for tokenizer, side in zip(self._tokenizers, sides, strict=True)
        )
        encoded = EncodedPairs(source, target, Filtered(self.sentences, 0, 0))
        return teacher_forcing_batch(encoded, np.arange(self.sentences), (self.length + 1, self.length + 1))

    def one_pass(self) -> Iterator[dict[str, np.ndarray]]:
        """Yield the batches of the first epoch."""
        return map(self.batch, range(max(1, round(self.batches_per_epoch))))

    def tokens(self, number: int) -> int:
        return self.sentences * (self.length + 1)

    def shape(self, number: int) -> tuple[int, ...]:
        return self.sentences, self.length + 1, self.length + 1

    def first_of_each_shape(self) -> list[int]:
        return [0]

    @property
    def batches_per_epoch(self) -> float:
        return self._batches_per_epoch

    def __str__(self) -> str:
        return f"fresh pairs in every batch: {self.sentences:,} of {self.length} tokens"
