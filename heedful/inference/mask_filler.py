"""Mask filling: a masked language model with its tokenizer."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from keras import ops

from heedful import backend
from heedful.config import DecodeConfig
from heedful.core.errors import InputError
from heedful.core.special_tokens import END_ID, MASK, START_ID
from heedful.core.validation import require_text
from heedful.data.lengths import round_up
from heedful.data.tokenizer import Tokenizer
from heedful.inference.batching import LENGTH_STEP
from heedful.inference.predictor import FilledText, Predictor, ScoredToken, TooLong, Warn, require_vocabulary
from heedful.inference.text_embedder import TextEmbedder
from heedful.runs.run import Run

WORD = "a"  # any word: text that begins with a space is encoded after it

NO_HEAD = (
    "This model was imported without a head that predicts masked tokens: it embeds texts (heedful embed) and starts "
    "other trainings (train.init_from), but cannot fill gaps."
)


class MaskFiller(Predictor):
    """Predicts the token at each [MASK] of a text.

    Args:
        model: a `MaskedLM`.
        tokenizer: the one it was trained with.
        untrained_head: whether the model can only embed texts, not predict masked tokens.
        embedder: computes vectors of texts; None: by the mean of all token vectors.
    """

    def __init__(
        self, model: Any, tokenizer: Tokenizer, untrained_head: bool = False, embedder: TextEmbedder | None = None
    ):
        require_vocabulary(model, vocab_size=tokenizer)
        if tokenizer.mask_id is None:
            raise ValueError("The tokenizer has no [MASK] token: train it with mask=True.")
        self.model, self.tokenizer, self.untrained_head = model, tokenizer, untrained_head
        self.embedder = embedder or TextEmbedder(model, tokenizer)
        self._program = backend.compiled(lambda ids: ops.softmax(ops.cast(model(ids), "float32")), model)

    @classmethod
    def from_run(cls, run: Run, decode: DecodeConfig | None = None) -> "MaskFiller":
        model = run.load_model()
        return cls(model, run.tokenizer, run.config.model.untrained_head, TextEmbedder.for_model(model, run))

    def predict_stream(
        self, texts: Iterable[str], warn: Warn | None = None, count: int = 5, **options: Any
    ) -> Iterator[FilledText]:
        """Yield the `FilledText` of each text. With `warn` a text that cannot be filled is returned as is."""
        for number, text in enumerate(texts, start=1):
            try:
                if MASK not in text and warn:
                    warn(f"line {number} has no {MASK}: it stays as it is.")
                    yield FilledText(text, [])
                else:
                    yield self.fill(text, count)
            except TooLong as error:
                if warn is None:
                    raise
                warn(f"line {number}: {error} It stays as it is.")
                yield FilledText(text, [])

    def fill(self, text: str, count: int = 5) -> FilledText:
        """Predict each [MASK] of a text.

        Returns:
            The text with the most likely token at each [MASK], and `count` candidates for each.

        Raises:
            TooLong: the text is longer than the model reads.
            InputError: the text has no [MASK], `count` is out of range, or the head of the model is untrained.
        """
        if self.untrained_head:
            raise InputError(NO_HEAD)
        parts = require_text(text).split(MASK)
        if len(parts) == 1:
            raise InputError(f"There is nothing to fill in: write {MASK} where a token is missing.")
        if not 0 < count < len(self.tokenizer):
            raise InputError(f"count ({count}) must be from 1 to the vocabulary's {len(self.tokenizer) - 1}.")
        # If tokens include the space before them, a space before a mask belongs to the token that replaces it.
        carried = self.tokenizer.carries_spaces
        parts = [part[:-1] if part.endswith(" ") and carried else part for part in parts[:-1]] + parts[-1:]
        ids, gaps = self._encode(parts)
        probabilities = self._probabilities(ids)
        filled, candidates = parts[0], []
        for gap, part in zip(gaps, parts[1:], strict=True):
            best = np.argsort(-probabilities[gap])[:count]
            names = self.tokenizer.pieces(best)
            pairs = zip(names, best, strict=True)
            candidates.append([ScoredToken(name, float(probabilities[gap, index])) for name, index in pairs])
            within = self.tokenizer.within
            if within and names[0].startswith(within):  # it continues a word
                filled = filled.rstrip() + names[0].removeprefix(within) + part
            else:
                filled = filled + names[0] + part
        return FilledText(filled, candidates)

    def embed(self, texts: Iterable[str], pooling: str | None = None, warn: Warn | None = None) -> np.ndarray:
        """Return a vector for each text (N, D); see `TextEmbedder`."""
        return self.embedder.embed(texts, pooling, warn)

    def _encode(self, parts: list[str]) -> tuple[list[int], list[int]]:
        """Return the ids of a text with masks between its parts, and the positions of the masks."""
        # The white space before a part counts only after a word; a tokenizer may strip that at the beginning of a text.
        stands_in = [WORD if part[:1].isspace() else "" for part in parts]
        encoded = self.tokenizer.encode_batch(word + part for word, part in zip(stands_in, parts, strict=True))
        word_length = len(self.tokenizer.encode(WORD))
        pieces = [ids[word_length:] if word else ids for word, ids in zip(stands_in, encoded, strict=True)]
        ids, gaps = [START_ID, *pieces[0]], []
        for piece in pieces[1:]:
            gaps.append(len(ids))
            ids += [self.tokenizer.mask_id, *piece]
        ids.append(END_ID)
        if len(ids) > self.model.max_length:
            raise TooLong(f"The text has {len(ids)} tokens; the model reads up to {self.model.max_length}.")
        return ids, gaps

    def _probabilities(self, ids: list[int]) -> np.ndarray:
        """Return the probabilities (T, V) at each position; 0 for special tokens, which fill no gap."""
        padded = np.zeros((1, round_up(len(ids), LENGTH_STEP, self.model.max_length)), np.int32)
        padded[0, : len(ids)] = ids
        probabilities = np.array(backend.to_numpy(self._program(padded))[0])
        probabilities[:, : END_ID + 1] = 0.0
        probabilities[:, self.tokenizer.mask_id] = 0.0
        return probabilities
