"""A document: the texts in it that are translated, and how their translations become a document again."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from heedful.data.markup.marked_text import MarkedText


@dataclass
class Document:
    """A document.

    Args:
        texts: what is translated.
        written: returns the content of the file with their translations.
        escaped: whether translations are written as HTML or XML, with entities.
        notes: messages for the user.
    """

    texts: list[MarkedText]
    written: Callable[[Sequence[str]], bytes]
    escaped: bool = False
    notes: list[str] = field(default_factory=list)


class Replacement(NamedTuple):
    """A range of a text that a translation replaces: characters `start` to `end`."""

    start: int
    end: int
    marked: MarkedText


class Replacements:
    """Collects the ranges of a text that are replaced by translations; those without words stay as they are."""

    def __init__(self, text: str):
        self.text = text
        self.ranges: list[Replacement] = []

    def add(self, start: int, end: int, read: Callable[[str], MarkedText]) -> None:
        """Add a range, without the white space at its ends; `read` returns its text without markup."""
        raw = self.text[start:end]
        start, end = start + len(raw) - len(raw.lstrip()), end - (len(raw) - len(raw.rstrip()))
        if end > start and not (marked := read(self.text[start:end])).wordless:
            self.ranges.append(Replacement(start, end, marked))

    @property
    def texts(self) -> list[MarkedText]:
        """What is translated."""
        return [one.marked for one in self.ranges]

    def written(self, translations: Sequence[str]) -> str:
        """Return the text with translations in the place of the ranges."""
        parts, position = [], 0
        for one, translation in zip(self.ranges, translations, strict=True):
            parts += [self.text[position : one.start], translation]
            position = one.end
        return "".join([*parts, self.text[position:]])


def ends_of(text: str) -> tuple[str, str, str]:
    """Return a text in three parts: the white space before it, the text, and the white space after it."""
    stripped = text.strip()
    lead = text[: len(text) - len(text.lstrip())]
    return lead, stripped, text[len(lead) + len(stripped) :]


def unwrapped(text: str) -> str:
    """Return a text with one space for each run of white space."""
    return re.sub(r"\s+", " ", text)


_TAG, _OUTSIDE_TAGS = re.compile(r"<[^<>]*>"), re.compile(r" (?![^<>]*>)")


def _length(words: Sequence[str]) -> int:
    return len(_TAG.sub("", " ".join(words)))


def wrapped(text: str, lines: int) -> list[str]:
    """Return a text in a number of lines, cut between words, of similar length; tags are not cut, nor counted."""
    words = _OUTSIDE_TAGS.split(text)
    lines = min(lines, len(words))
    parts: list[str] = []
    for left in range(lines, 0, -1):
        size = _length(words) / left
        count = 1
        while len(words) - count >= left and _length(words[: count + 1]) <= size + 1:
            count += 1
        count = len(words) if left == 1 else count
        parts.append(" ".join(words[:count]))
        words = words[count:]
    return parts
