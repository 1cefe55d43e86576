"""The words of a text, for markup: they are aligned, and terms consist of them."""

import math
import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple
from unicodedata import combining, normalize

from heedful.data.normalization import UNSPACED

_WORD = re.compile(f"[{UNSPACED}]|[^\\W{UNSPACED}]+(?:['\u2019-][^\\W{UNSPACED}]+)*|[^\\w\\s]")
STEM, SHORTEST_STEM = 2 / 3, 4  # share of a word, and letters, with which all its forms are expected to begin
LONGEST_ENDING = 3  # letters that a form may have after a whole word


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
    words, parts = words_of(text), [term[word.start : word.end] for word in words_of(term)]
    for first in range(len(words) - len(parts) + 1):
        form = words[first : first + len(parts)]
        span = form[0].start, form[-1].end
        written = [text[word.start : word.end] for word in form]
        if first == 0:  # a sentence begins with a capital letter
            written[0] = written[0][:1].lower() + written[0][1:] if parts[0][:1].islower() else written[0]
        if is_free(span, taken) and all(map(_is_form, written, parts)):
            return span
    return None


def is_free(span: tuple[int, int], taken: Iterable[tuple[int, int]]) -> bool:
    """Return whether a range of characters overlaps none of those that are taken."""
    return all(span[1] <= start or span[0] >= end for start, end in taken)


def _is_form(written: str, word: str) -> bool:
    """Return whether a word may be a form of another one: it has an ending more, or begins like it.

    Capital letters tell nouns from other words ("Nacht", "nach").
    """
    if written[:1].isupper() != word[:1].isupper():
        return False
    one, other = _folded(written), _folded(word)
    size = max(SHORTEST_STEM, math.ceil(STEM * max(len(one), len(other))))
    longer = one.startswith(other) and len(one) - len(other) <= LONGEST_ENDING
    return longer or (min(len(one), len(other)) >= size and one[:size] == other[:size])


def _folded(word: str) -> str:
    """Return a word without regard to case and accents, which may change with its form ("Haus", "Häuser")."""
    return "".join(letter for letter in normalize("NFD", word.casefold()) if not combining(letter))
