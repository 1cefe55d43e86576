"""The words of a text, for markup: they are aligned, and terms consist of them."""

import math
import re
from collections.abc import Collection, Sequence
from typing import NamedTuple
from unicodedata import combining, normalize

from heedful.data.normalization import UNSPACED

_WORD = re.compile(f"[{UNSPACED}]|[^\\W{UNSPACED}]+(?:['\u2019-][^\\W{UNSPACED}]+)*|[^\\w\\s]")
STEM, SHORTEST_STEM = 2 / 3, 3  # share of a word, and letters, with which all its forms are expected to begin


class Word(NamedTuple):
    """Characters `start` to `end` of a text: a word, a punctuation mark, or a whole protected span."""

    start: int
    end: int


def words_of(text: str, whole: Sequence[tuple[int, int]] = ()) -> list[Word]:
    """Return the words of a text; the ranges in `whole`, which must be in order, are words of their own.

    >>> [text[word.start : word.end] for text in ["It's 5 km."] for word in words_of(text, [(5, 9)])]
    ["It's", '5 km', '.']
    """
    words: list[Word] = []
    end = 0
    for start, stop in [*whole, (len(text), len(text))]:
        words += [Word(end + match.start(), end + match.end()) for match in _WORD.finditer(text[end:start])]
        if stop > start:
            words.append(Word(start, stop))
        end = stop
    return words


def inflected(text: str, term: str, taken: Collection[tuple[int, int]]) -> tuple[int, int] | None:
    """Return where a text has another form of a term outside of `taken`: words that begin as those of the term do.

    >>> inflected("Zwei alte Häuser.", "altes Haus", [])
    (5, 16)
    """
    words, stems = words_of(text), [_folded(term[word.start : word.end]) for word in words_of(term)]
    for first in range(len(words) - len(stems) + 1):
        form = words[first : first + len(stems)]
        span = form[0].start, form[-1].end
        written = (_folded(text[word.start : word.end]) for word in form)
        if all(span[1] <= start or span[0] >= end for start, end in taken) and all(map(_same_stem, written, stems)):
            return span
    return None


def _same_stem(one: str, other: str) -> bool:
    """Return whether two words begin alike, as forms of one word do: for two thirds of the longer, at least."""
    size = max(SHORTEST_STEM, math.ceil(STEM * max(len(one), len(other))))
    return min(len(one), len(other)) >= size and one[:size] == other[:size]


def _folded(word: str) -> str:
    """Return a word without regard to case and accents, which may change with its form ("Haus", "Häuser")."""
    return "".join(letter for letter in normalize("NFD", word.casefold()) if not combining(letter))
