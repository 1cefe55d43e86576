"""Masked language modelling: some tokens of a text are hidden, and the model learns to predict them.

Axes: B texts, T length of a text with its start and end token, M masked places.
"""

import math

import numpy as np

from heedful.core.special_tokens import END_ID
from heedful.data.batches import BatchPlan, Shape
from heedful.data.examples import PlannedExamples, enclosed
from heedful.data.order import random_numbers
from heedful.data.ragged import Ragged
from heedful.data.tokenizer import Tokenizer

LONG_WORD = 6  # pieces by which a whole word may exceed the share
MASKED, REPLACED = 0.8, 0.1  # shares of the chosen tokens; the rest stay unchanged (Devlin et al. 2019, section 3.1)


def in_pieces(texts: Ragged, length: int) -> Ragged:
    """Cut id sequences into pieces that fit into `length` with start and end tokens; return them as `Ragged`."""
    room = length - 2
    return Ragged.of(texts[index][start : start + room] for index in range(len(texts))
                     for start in range(0, len(texts[index]), room))  # fmt: skip


class MaskedExamples(PlannedExamples):
    """Texts with masked tokens.

    In each text a share of the tokens is chosen, at least one. Of these, 80 % become the mask token, 10 % a random
    token, and 10 % stay unchanged. With `whole_words`, either all pieces of a word are chosen or none.

    Args:
        pieces: `Ragged` ids without start and end tokens.
        tokenizer: a `Tokenizer` with a mask token.
        plan: a `BatchPlan` over the lengths of the pieces, start and end token included.
        share: share of the tokens to choose.
        whole_words: choose words instead of tokens.
        seed: seed of the choice.
    """

    def __init__(
        self,
        pieces: Ragged,
        tokenizer: Tokenizer,
        plan: BatchPlan,
        share: float = 0.15,
        whole_words: bool = False,
        seed: int = 0,
    ):
        super().__init__(plan)
        self.pieces, self.share, self.seed = pieces, share, seed
        self.mask_id, self.vocab_size = tokenizer.mask_id, len(tokenizer)
        self.begins_word = np.asarray(tokenizer.begins_word()) if whole_words else None

    def __str__(self) -> str:
        kind = "tokens" if self.begins_word is None else "words"
        return f"{self.plan}\n{self.share:.0%} of the {kind} to predict"

    def read(self, rows: np.ndarray, shape: Shape, draw: tuple[int, ...]) -> dict[str, np.ndarray]:
        """Return ids (B, T) with masks, places (B, M), labels (B, M) and float32 weights (B, M)."""
        length, random = shape.target_length, random_numbers(self.seed, *draw)
        ids = enclosed(self.pieces, rows, length)
        open_places = ids > END_ID  # padding, start, end and unknown tokens are not worth predicting
        max_masks = max(1, math.ceil(self.share * (length - 2)))
        if self.begins_word is not None:
            max_masks = min(max_masks + LONG_WORD, length - 2)
        keys = random.random(ids.shape)
        if self.begins_word is not None:  # all pieces of a word draw the same number
            begins = self.begins_word[ids]
            begins[:, 1] = True  # the first token begins a word even without a space before it
            word = np.cumsum(begins, axis=1)
            keys = np.take_along_axis(keys, word % length, axis=1) + word * 1e-9
        keys = np.where(open_places, keys, 2.0)
        order = np.argsort(keys, axis=1, kind="stable")[:, :max_masks]
        wanted = np.maximum(1, np.round(self.share * open_places.sum(axis=1)))[:, None]
        chosen = (np.arange(max_masks) < wanted) & np.take_along_axis(open_places, order, axis=1)
        if self.begins_word is not None:
            chosen = self._whole(np.take_along_axis(word, order, axis=1), word, chosen)
            chosen &= np.take_along_axis(open_places, order, axis=1)
        labels = np.where(chosen, np.take_along_axis(ids, order, axis=1), 0)
        fate = random.random(labels.shape)
        other = random.integers(self.mask_id + 1, self.vocab_size, labels.shape)
        seen = np.where(fate < MASKED, self.mask_id, np.where(fate < MASKED + REPLACED, other, labels))
        hidden = ids.copy()
        np.put_along_axis(hidden, order, np.where(chosen, seen, np.take_along_axis(ids, order, axis=1)), axis=1)
        return {
            "ids": hidden,
            "places": np.where(chosen, order, 0).astype(np.int32),
            "labels": labels.astype(np.int32),
            "weights": chosen.astype(np.float32),
        }

    @staticmethod
    def _whole(chosen_words, words, chosen):
        """Return which tokens belong to words whose pieces are all chosen; the first word always counts as chosen."""
        sizes = (words[:, :, None] == chosen_words[:, None, :]).sum(axis=1)
        counts = ((chosen_words[:, :, None] == chosen_words[:, None, :]) & chosen[:, None, :]).sum(axis=2)
        return (chosen & (counts == sizes)) | (chosen_words == chosen_words[:, :1])
