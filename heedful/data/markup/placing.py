"""Where protected spans go in a translation, by the alignment of its words with those of the source.

Axes: T words of the translation, S words of the source.
"""

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from heedful.config.protected import LENIENT, Protection
from heedful.data.markup.inline_terms import with_terms
from heedful.data.markup.words import Word, inflected, is_free, words_of
from heedful.data.normalization import word_character

_LETTER, _ADDRESS = re.compile(r"[^\W_]"), re.compile(r"[\w/:@#]")  # what would be read as a part of a span
DELIMITERS = set("%${}()[]`")  # of spans such as `%(count)d`
CLOSING = {"}": "{", ")": "(", "]": "["}
_NAME_BEGINS = re.compile(r"[^\W\d]|[({%$]")
WITHOUT_DELIMITERS = ("term", "url", "email", "number")  # kinds of spans
HALF = 0.5  # share of a word's attention above which it belongs to a span


class Place(NamedTuple):
    """A protected span in a sentence that a model reads.

    Args:
        start, end: characters of the sentence.
        shown: what the model should write for it.
        result: what the translation gets.
        kind: see `Slot`.
    """

    start: int
    end: int
    shown: str
    result: str
    kind: str


@dataclass
class Sentence:
    """A sentence as a model reads it, and its translation.

    Args:
        source: the text.
        places: protected spans, in order.
        offset: where it begins in the whole text, whose protected spans have their own lengths there.
        protection: finds protected spans in the translation.
        read_terms: whether the model reads the terms of the source, and so may inflect them.
    """

    source: str
    places: list[Place]
    offset: int
    protection: Protection
    read_terms: bool = False
    source_words: list[Word] = field(init=False)

    def __post_init__(self) -> None:
        self.source_words = words_of(self.source, [(place.start, place.end) for place in self.places])

    @property
    def read_as(self) -> str:
        """What the model reads: the source, and terms that may follow it."""
        terms = [place.result for place in self.places if place.kind == "term"] if self.read_terms else []
        return with_terms(self.source, terms)

    @property
    def unprotected(self) -> str:
        """What stands between the protected spans of the source."""
        bounds = [
            0,
            *itertools.chain.from_iterable((place.start, place.end) for place in self.places),
            len(self.source),
        ]
        return "\n".join(self.source[start:end] for start, end in zip(bounds[::2], bounds[1::2], strict=True))

    def matches(self, translation: str) -> "SpanMatches":
        """Return which spans a translation has, and which it lacks or has too often."""
        spans = self.protection.spans(translation)
        texts = [translation[span.start : span.end] for span in spans]
        used: dict[int, Place] = {}  # index of a span -> its place
        missing: list[Place] = []
        ranges: list[tuple[int, int, Place | None]] = []
        for place in self.places:
            free = (
                i for i, text in enumerate(texts)
                if text == place.shown and i not in used and is_free(spans[i][:2], [one[:2] for one in ranges])
            )  # fmt: skip
            if (index := next(free, None)) is not None:
                used[index] = place
                continue
            taken = [span[:2] for span in ranges] + [spans[i][:2] for i in used]
            start = _free_match(translation, place, self.source, taken)
            if start is None:
                missing.append(place)
            else:
                ranges.append((start, start + len(place.shown), place))
        ranges += [(spans[index].start, spans[index].end, place) for index, place in used.items()]
        stray = [
            span[:2] for index, span in enumerate(spans)
            if index not in used and is_free(span[:2], [one[:2] for one in ranges])
        ]  # fmt: skip
        kinds = {span[:2]: span.kind for span in spans}
        for place in list(missing):  # what the model wrote instead of it, most likely
            if place.kind not in ("term", "tag") and (same := [one for one in stray if kinds[one] == place.kind]):
                stray.remove(same[0])
                missing.remove(place)
                ranges.append((*same[0], place))
        # What the source has as plain text, such as an address that a tag cuts in two, is no invention of the model.
        ranges += [
            (*span, None) for span in stray
            if kinds[span] != LENIENT and translation[slice(*span)] not in self.unprotected
        ]  # fmt: skip
        forms: list[tuple[int, int]] = []
        for place in list(missing) if self.read_terms else ():
            taken = [span[:2] for span in ranges] + forms
            if place.kind == "term" and (form := inflected(translation, place.shown, taken)):
                missing.remove(place)
                forms.append(form)
        return SpanMatches(sorted(ranges, key=lambda one: one[:2]), missing, forms)

    def kept_words(self, matches: "SpanMatches", translation: str, words: Sequence[Word]) -> list[bool]:
        """Return which words of a translation stay: not the delimiters that are left of a span copied badly.

        Such are brackets without their counterpart, lone backticks, and a percent or dollar sign before something like
        a name. What the source has as text stays in any case.
        """
        spans = "".join(place.result for place in self.places if place.kind not in WITHOUT_DELIMITERS)
        delimiters = DELIMITERS & set(spans) - set(self.unprotected)
        matched = {start for start, _, _ in matches.ranges}
        marks = [translation[start:end] if start not in matched else "" for start, end in words]
        unpaired = _unpaired(marks)
        kept, debris_end = [], -1
        for index, (start, end) in enumerate(words):
            mark, after = marks[index], translation[end : end + 1]
            if mark not in delimiters:
                is_debris = False
            elif mark in "%$":
                is_debris = bool(_NAME_BEGINS.match(after)) and not translation[:start][-1:].isdigit()
            elif mark in "()[]":  # of the model's own, unless it lacks a span
                is_debris = index in unpaired and (bool(matches.missing) or start == debris_end)
            else:
                is_debris = mark == "`" or index in unpaired
            debris_end = end if is_debris else debris_end
            kept.append(not is_debris)
        return kept


class SpanMatches(NamedTuple):
    """Spans of a translation with their places, None for one that is removed; and places that it lacks.

    Args:
        forms: where the translation has other forms of terms.
    """

    ranges: list[tuple[int, int, Place | None]]
    missing: list[Place]
    forms: Sequence[tuple[int, int]] = ()


def _unpaired(marks: Sequence[str]) -> set[int]:
    """Return the indices of brackets without a counterpart."""
    opened: list[int] = []
    unpaired = set()
    for index, mark in enumerate(marks):
        if mark in CLOSING.values():
            opened.append(index)
        elif mark in CLOSING:
            if opened and marks[opened[-1]] == CLOSING[mark]:
                opened.pop()
            else:
                unpaired.add(index)
    return unpaired | set(opened)


def _free_match(text: str, place: Place, source: str, taken: Sequence[tuple[int, int]]) -> int | None:
    """Return where a text has a span outside of `taken`; None if nowhere.

    Of several occurrences it is the one with the same number as in the source, where the words of the span may stand
    unprotected too; if that is taken, the nearest.
    """
    number = sum(start < place.start for start in _matches(source, place, source))
    size = len(place.shown)
    free = [
        (abs(index - number), start) for index, start in enumerate(_matches(text, place, source))
        if is_free((start, start + size), taken)
    ]  # fmt: skip
    return min(free)[1] if free else None


def _matches(text: str, place: Place, source: str) -> list[int]:
    """Return where a text has the words of a span, within a word only if the source has it so.

    A term counts in any case, and with an ending.
    """
    shown, term = place.shown, place.kind == "term"
    folded = term and len(text.lower()) == len(text)
    searched, wanted = (text.lower(), shown.lower()) if folded else (text, shown)
    glued = _in_word(source[: place.start][-1:]), _in_word(source[place.end : place.end + 1])
    starts = []
    start = searched.find(wanted)
    while start >= 0:
        end = start + len(shown)
        within = _in_word(shown[0]) and _in_word(text[:start][-1:]) and not glued[0]
        within |= _in_word(shown[-1]) and _in_word(text[end : end + 1]) and not (glued[1] or term)
        if not within:
            starts.append(start)
        start = searched.find(wanted, start + 1)
    return starts


def _in_word(character: str) -> bool:
    """Return whether a character is part of a word, as in `size_t`."""
    return bool(word_character().match(character))


@dataclass
class WrittenWord:
    """A word of the result: its text, the white space before it, and how it belongs to its sentence's words (S,)."""

    text: str
    gap: str
    row: np.ndarray
    place: Place | None = None
    """Of a protected span."""
    is_term: bool = False
    """Whether it is a form of a term."""
    first: int = 0
    """Number of words of the source before the sentence that `row` is about."""


def place_spans(
    sentence: Sentence, translation: str, matches: SpanMatches, words: Sequence[Word], attention: np.ndarray | None,
    escape: Callable[[str], str],
) -> list[WrittenWord]:  # fmt: skip
    """Return the words of a translation with each protected span exactly once.

    Args:
        sentence: the source.
        translation: the model's.
        matches: `sentence.matches(translation)`.
        words: of the translation; the ranges of `matches` are words of their own.
        attention: of the words of the translation to those of the source (T, S); None: nothing is missing.
        escape: applied to what the model wrote.
    """
    count = len(sentence.source_words)
    kept = sentence.kept_words(matches, translation, words)
    index_of = {word.start: index for index, word in enumerate(sentence.source_words)}
    at = {start: place for start, _, place in matches.ranges}
    written: list[WrittenWord] = []
    end, gap = 0, ""
    for number, word in enumerate(words):
        text, place = translation[word.start : word.end], at.get(word.start)
        gap = gap or escape(translation[end : word.start])
        end = word.end
        if not kept[number] or (place is None and word.start in at):
            continue
        if place is None:
            row = np.zeros(count) if attention is None else attention[number]
            written.append(WrittenWord(escape(text), gap, row, is_term=not is_free(word, matches.forms)))
        else:
            result = _result(place, escape)
            if place.kind == "term" and text[0].isupper() and result[:1].islower():
                result = result[0].upper() + result[1:]
            written.append(WrittenWord(result, gap, _one_hot(count, index_of[place.start]), place))
        gap = ""
    for place in matches.missing:
        _insert(written, place, _result(place, escape), index_of[place.start], sentence)
    _separate(written, sentence)
    return written


def _result(place: Place, escape: Callable[[str], str]) -> str:
    """Return what a translation gets for a span: a term is text; all else is as it stood in the source."""
    return escape(place.result) if place.kind == "term" else place.result


def _insert(written: list[WrittenWord], place: Place, result: str, index: int, sentence: Sentence) -> None:
    """Put a span where the words stand that the model wrote for it, or beside the translation of its neighbour."""
    row = _one_hot(len(sentence.source_words), index)
    # A model writes words for it.
    kept = [bool(one.place) or one.is_term or not any(map(str.isalnum, one.text)) for one in written]
    scores = np.array([-1.0 if fixed else one.row[index] - HALF for one, fixed in zip(written, kept, strict=True)])
    start, stop = best_range(scores)
    if stop > start and scores[start:stop].sum() > 0:
        written[start:stop] = [WrittenWord(result, written[start].gap, row, place)]
        return
    position = _beside([one.row for one in written], index)
    gap = " " if position and sentence.source[: place.start][-1:].isspace() else ""
    written.insert(position, WrittenWord(result, gap, row, place))


def _separate(written: Sequence[WrittenWord], sentence: Sentence) -> None:
    """Put a space between a span and a letter beside it, unless the source has a letter there too."""
    for one, following in itertools.pairwise(written):
        if following.gap:
            continue
        if (place := following.place) and not sentence.source[: place.start][-1:].isalnum():
            following.gap = " " if one.text[-1:].isalnum() else ""
        if (place := one.place) and place.kind != "term" and not sentence.source[place.end : place.end + 1].isalnum():
            letters = _ADDRESS if place.kind in ("url", "email") else _LETTER
            following.gap = following.gap or (" " if letters.match(following.text) else "")


def _one_hot(count: int, index: int) -> np.ndarray:
    row = np.zeros(count)
    row[index] = 1.0
    return row


def best_range(scores: np.ndarray) -> tuple[int, int]:
    """Return the range (start, stop) with the largest sum; the best single word if all are negative."""
    best, best_range, total, start = -np.inf, (0, 0), 0.0, 0
    for index, score in enumerate(scores):
        if total <= 0:
            total, start = 0.0, index
        total += score
        if total > best:
            best, best_range = total, (start, index + 1)
    return best_range


def _beside(rows: Sequence[np.ndarray], index: int) -> int:
    """Return before which word a span belongs, by the source's word before it, or the one after it."""
    if not rows:
        return 0
    matrix = np.stack(rows)
    if index > 0 and (column := matrix[:, index - 1]).max() > 0:
        return int(column.argmax()) + 1
    if index + 1 < matrix.shape[1] and index > 0 and (column := matrix[:, index + 1]).max() > 0:
        return int(column.argmax())
    return 0 if index == 0 else len(rows)
