"""Search results as lists of ids, and checks of the inputs of a search."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from heedful.config import DecodeConfig
from heedful.core.errors import InputError
from heedful.core.special_tokens import END_ID, PAD_ID
from heedful.data.tokenizer import Tokenizer

SENTENCE_STRIDE = 1 << 40  # between the numbers of the sentences of a line, which sampling depends on


class Candidate(NamedTuple):
    """One result for one source."""

    ids: list[int]
    """Without the end token."""
    score: float
    """In nats, normalised by length."""


def forbidden_ids(decode: DecodeConfig, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the ids of the tokens that are never generated.

    Raises:
        InputError: one is not in the vocabulary, or the vocabulary is smaller than the beam.
    """
    if decode.beam_size >= len(tokenizer):
        raise InputError(f"beam_size ({decode.beam_size}) must be below the vocabulary's {len(tokenizer)} entries.")
    ids = {token: tokenizer.lookup(token) for token in decode.forbidden}
    if unknown := [token for token, index in ids.items() if index is None]:
        raise InputError(f"decode.forbidden: {unknown[0]!r} is not a token of the vocabulary.")
    return tuple(ids.values())


def require_room(prefix: Sequence[int], limit: int, number: int | None = None, given: bool = True) -> None:
    """Raise `InputError` if the prefix of a source, line `number`, leaves no room in a result of `limit` tokens.

    `given`: whether the user has given the prefix; otherwise it is that of every target.
    """
    of_line = "" if number is None else f" of line {number % SENTENCE_STRIDE}"
    if given and prefix and len(prefix) >= limit:
        raise InputError(
            f"The prefix{of_line} has {len(prefix)} tokens; this source's translation may have at most {limit}."
        )
    if limit < len(prefix) + 1:
        raise InputError(f"The settings leave no room for a translation{of_line}: see max_length and max_ratio.")


def until_end(ids: np.ndarray) -> list[int]:
    """Return the ids before the end token or padding."""
    stop = np.flatnonzero((ids == END_ID) | (ids == PAD_ID))
    return ids[: stop[0]].tolist() if len(stop) else ids.tolist()
