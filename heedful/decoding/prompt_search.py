"""A search for language models: prompts in, continuations out."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from heedful.backend.program_cache import ProgramCache
from heedful.config import DecodeConfig
from heedful.data.lengths import round_up
from heedful.data.ragged import Ragged
from heedful.data.tokenizer import Tokenizer
from heedful.decoding.batch_search import BatchSearch, length_step, padded


class PromptSearch(BatchSearch):
    """A search for language models: its sources are prompts, and its results continue them.

    Padding, unknown tokens and start tokens are never generated, since they are not text.

    Args:
        model: a `CausalLM`.
        decode: the settings; `max_length` is the number of tokens to write.
        tokenizer, scored, programs, brief: see `BatchSearch`.
    """

    def __init__(
        self, model: Any, decode: DecodeConfig, tokenizer: Tokenizer, scored: bool = False,
        programs: ProgramCache | None = None, brief: bool = False,
    ):  # fmt: skip
        super().__init__(model, decode, tokenizer, scored, programs, brief)
        self.forbidden = (tokenizer.pad_id, tokenizer.unknown_id, tokenizer.start_id, *self.forbidden)

    def length_limit(self, length: int) -> int:
        """Return the maximum number of tokens after a prompt of `length` tokens; the last one is never read back."""
        return min(self.decode.max_length, self.model.max_length - length + 1)

    def _read(self, queries: Sequence[Any], rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        longest = min(round_up(max(len(query.source) for query in queries), length_step()), self.model.max_length)
        before = Ragged.of([query.source[:-1] for query in queries])
        return before.padded(rows, longest), padded([query.source[-1] for query in queries], len(rows))

    def _capacity(self, queries: Sequence[Any], read: int) -> int:
        return max(query.limit for query in queries)  # a longer prompt leaves less room
