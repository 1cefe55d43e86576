"""Gaps in, words out: a masked language model with its tokenizer."""

import numpy as np
from keras import ops

from heedful import backend
from heedful.checked import one, several
from heedful.errors import InputError
from heedful.models.masked_lm import POOLINGS
from heedful.reading.batched import STEP, Batched
from heedful.special_tokens import END_ID, MASK, START_ID

NO_HEAD = (
    "This model was imported without a head that predicts masked tokens: it embeds texts (heedful embed) and starts "
    "other trainings (train.start_from), but cannot fill gaps."
)


class TooLong(InputError):
    """A text has more tokens than the model reads."""


class Filler:
    """Fills gaps, and turns texts into vectors.

    Args:
        model: a `MaskedLM`.
        tokenizer: what it was trained with.
        untrained_head: whether the model cannot predict masked tokens, but embed texts only.
    """

    def __init__(self, model, tokenizer, untrained_head=False):
        self.model, self.tokenizer, self.untrained_head = model, tokenizer, untrained_head
        self._predict = backend.compiled(lambda ids: ops.softmax(ops.cast(model(ids), "float32")), model)
        self._embedders = {}

    @classmethod
    def from_run(cls, run):
        """Load the model of a `Run`."""
        return cls(run.load_model(), run.tokenizer, run.config.model.untrained_head)

    def fill(self, text, count=5):
        """Say what could stand at each [MASK] of a text.

        Returns:
            The text, otherwise as it was given, with the likeliest token at each, and for each [MASK] a list of `count`
            (token, probability).

        Raises:
            TooLong: the text is longer than the model reads.
            InputError: the text has no [MASK], `count` is out of range, or the head of the model is untrained.
        """
        if self.untrained_head:
            raise InputError(NO_HEAD)
        parts = one(text).split(MASK)
        if len(parts) == 1:
            raise InputError(f"There is nothing to fill in: write {MASK} where a token is missing.")
        if not 0 < count < len(self.tokenizer):
            raise InputError(f"count ({count}) must be from 1 to the vocabulary's {len(self.tokenizer) - 1}.")
        # A space before the gap belongs to the token in it where tokens carry their space.
        carried = self.tokenizer.carries_spaces
        parts = [part[:-1] if part.endswith(" ") and carried else part for part in parts[:-1]] + parts[-1:]
        pieces = self.tokenizer.encode_batch(parts)
        ids = [START_ID, *pieces[0]]
        gaps = []
        for piece in pieces[1:]:
            gaps.append(len(ids))
            ids += [self.tokenizer.mask_id, *piece]
        ids.append(END_ID)
        if len(ids) > self.model.max_length:
            raise TooLong(f"The text has {len(ids)} tokens; the model reads up to {self.model.max_length}.")
        padded = np.zeros((1, -(-len(ids) // STEP) * STEP), np.int32)
        padded[0, : len(ids)] = ids
        probabilities = np.array(backend.to_numpy(self._predict(padded[:, : self.model.max_length]))[0])
        probabilities[:, : END_ID + 1] = 0.0  # a gap holds no special token
        probabilities[:, self.tokenizer.mask_id] = 0.0
        filled, candidates = parts[0], []
        for gap, part in zip(gaps, parts[1:], strict=True):
            best = np.argsort(-probabilities[gap])[:count]
            names = self.tokenizer.pieces(best)
            candidates.append([(name, float(probabilities[gap, i])) for name, i in zip(names, best, strict=True)])
            within = self.tokenizer.within
            goes_on = within and names[0].startswith(within)
            filled = (filled.rstrip() + names[0].removeprefix(within) if goes_on else filled + names[0]) + part
        return filled, candidates

    def embed(self, texts, pooling="mean"):
        """Return a vector for each text (N, D): the mean of its tokens' vectors, or that of the `first`, the start."""
        if pooling not in POOLINGS:
            raise InputError(f"Unknown pooling {pooling!r}: choose one of {', '.join(POOLINGS)}.")
        if pooling not in self._embedders:
            model = self.model
            self._embedders[pooling] = Batched(
                lambda ids: model.pool(ids, ops.cast(model.encode(ids), "float32"), pooling), model, model.max_length
            )
        rows = self._embedders[pooling](self.tokenizer.encode_batch(several(texts)))
        return np.array(rows).reshape(len(rows), self.model.d_model)

    @property
    def cut(self):
        """How many embedded texts so far were too long to be read to their end."""
        return sum(embedder.cut for embedder in self._embedders.values())
