"""A text whose words are aligned with those of another one."""

from collections.abc import Sequence
from typing import NamedTuple

from heedful.data.markup.words import Word, words_of


class AlignedText(NamedTuple):
    """A text and its words."""

    text: str
    words: Sequence[Word]

    def split(self) -> list[str]:
        """Return its words as texts."""
        return [self.text[word.start : word.end] for word in self.words]

    @classmethod
    def of(cls, text: str) -> "AlignedText":
        """Return a text with its usual words."""
        return cls(text, words_of(text))
