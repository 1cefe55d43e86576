"""A document: the texts in it that are translated, and how their translations become a document again."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from heedful.data.markup.marked_text import MarkedText
from heedful.data.markup.messages import message_pieces


@dataclass
class Document:
    """A document.

    Args:
        texts: what is translated.
        written: returns the content of the file with their translations.
        notes: messages for the user.
    """

    texts: list[MarkedText]
    written: Callable[[Sequence[str]], bytes]
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


class TextCollector:
    """Collects the texts of a document; a message with plural forms or choices has one for each of its sentences.

    Args:
        read: returns a text without its markup.
    """

    def __init__(self, read: Callable[[str], MarkedText]):
        self._read = read
        self.texts: list[MarkedText] = []

    def add(self, raw: str) -> Callable[[Sequence[str]], str] | None:
        """Add a text; return what makes its translation from those of all texts, or None if it has no words."""
        message = message_pieces(raw)
        parts = message.texts if message else [raw]
        marked = [self._read(part) for part in parts]
        if all(one.wordless for one in marked):
            return None
        places: list[int | None] = []  # in `texts`; None: it stays as it is
        for one in marked:
            places.append(None if one.wordless else len(self.texts))
            self.texts += [] if one.wordless else [one]

        def written(results: Sequence[str]) -> str:
            translations = [
                part if place is None else results[place] for part, place in zip(parts, places, strict=True)
            ]
            return message.join(translations) if message else translations[0]

        return written


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
