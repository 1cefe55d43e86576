"""Checking whether a vocabulary fits a text."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from heedful.data.doctor.rows import Rows, is_complete

SAMPLE = 20_000  # most rows encoded for the check
UNKNOWN = 0.01  # largest share of unknown tokens for a vocabulary that fits
FINER = 1.5  # largest ratio of tokens per character to the training text


@dataclass(frozen=True)
class Fit:
    """How well a vocabulary fits a text.

    Args:
        where: the text, such as "valid source".
        unknown: share of unknown tokens.
        per_character: tokens per character.
        used: share of the vocabulary that occurs.
        usual: tokens per character in the training text.
    """

    where: str
    unknown: float
    per_character: float
    used: float
    usual: float

    @property
    def fits(self) -> bool:
        """Whether few tokens are unknown and tokens are not much shorter than in the training text."""
        return self.unknown <= UNKNOWN and self.per_character <= FINER * self.usual

    def __str__(self) -> str:
        text = f"{self.where}: {self.unknown:.2%} unknown tokens, {self.per_character:.3f} tokens a character"
        text += f", {self.used:.0%} of the vocabulary used"
        return text if self.fits else f"{text}: the vocabulary does not fit this text; train it on text like this"


def fits(parts: Mapping[str, Rows], tokenizers: Sequence[Any]) -> list[Fit]:
    """Return a `Fit` for each part of the text and each column of it.

    Args:
        parts: `Rows` by name, the training text first.
        tokenizers: one for each column that is text.
    """
    results: list[Any] = []
    usual: dict[Any, Any] = {}
    for part, text in parts.items():
        rows = list(filter(is_complete, itertools.islice(text, SAMPLE)))
        for column, tokenizer in zip(text.texts, tokenizers, strict=True):
            lines = [(row[column] or "").encode("utf-8", "replace").decode() for row in rows]
            characters = sum(map(len, lines))
            if not characters:
                continue
            ids = np.concatenate([np.asarray(ids, int) for ids in tokenizer.encode_batch(lines)])
            per_character = len(ids) / characters
            usual.setdefault(column, per_character)
            unknown = float((ids == tokenizer.unknown_id).mean()) if len(ids) else 0.0
            used = len(np.unique(ids)) / len(tokenizer)
            results.append(Fit(f"{part} {text.columns[column]}", unknown, per_character, used, usual[column]))
    return results
