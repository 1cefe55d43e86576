"""Where tags go in a translation, by the alignment of its words with those of the source.

Axes: T words of the translation, S words of the source.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from heedful.data.markup.marked_text import Tag
from heedful.data.markup.placing import HALF, WrittenWord, best_range
from heedful.data.markup.words import Word


class _Pair(NamedTuple):
    """A pair of tags around the words `start` to `stop` of the result."""

    tag: Tag
    start: int
    stop: int
    inner: "list[_Pair]"
    points: "list[_Point]"


class _Point(NamedTuple):
    """A tag that stands alone, before the word `position` of the result."""

    tag: Tag
    position: int


def place_tags(written: Sequence[WrittenWord], text: str, words: Sequence[Word], tags: Sequence[Tag]) -> str:
    """Return a translation with its tags, well-formed if those of the source are nested.

    Args:
        written: its words, with what they belong to.
        text: the whole source.
        words: of the source.
        tags: of the source.
    """
    placer = _TagPlacer(written, text, words)
    in_order = sorted(tags, key=lambda tag: tag.order)
    pairs = [tag for tag in in_order if tag.closing and placer.covered(tag).any()]
    alone = [tag if not tag.closing else _emptied(tag) for tag in in_order if tag not in pairs]
    tree, points = placer.nested(pairs, alone, (0, len(written)), np.ones(len(words), bool))
    return _joined(written, 0, len(written), tree, points)


def _emptied(tag: Tag) -> Tag:
    """Return a pair of tags around no word as one that stands alone."""
    return Tag(tag.start, tag.start, tag.opening + tag.closing, "", tag.order, (True, False))


def _holder(tag: Tag, outermost: Sequence[Tag]) -> int | None:
    """Return the index of the tag that a tag is in; None if it is in none."""
    return next((index for index, one in enumerate(outermost) if _inside(tag, one)), None)


def _inside(tag: Tag, outer: Tag) -> bool:
    return outer.order[0] < tag.order[0] and tag.order[1] < outer.order[1]


class _TagPlacer:
    """Finds the words of a translation around which the tags of its source go; see `place_tags`."""

    def __init__(self, written: Sequence[WrittenWord], text: str, words: Sequence[Word]):
        self.written, self.text = written, text
        self.source_words = np.array([tuple(word) for word in words]).reshape(-1, 2)  # (S, 2)
        self.source_has_letters = np.array([any(map(str.isalnum, text[word.start : word.end])) for word in words], bool)
        self.has_letters = np.array([bool(one.place) or any(map(str.isalnum, one.text)) for one in written], bool)

    def covered(self, tag: Tag) -> np.ndarray:
        """Return which words of the source (S,) a tag surrounds, at least in part."""
        return (self.source_words[:, 0] < tag.end) & (self.source_words[:, 1] > tag.start)

    def shares(self, covered: np.ndarray) -> np.ndarray:
        """Return how much of each word (T,) belongs to some words of the source, given as a mask (S,)."""
        return np.array([one.row @ covered[one.first : one.first + len(one.row)] for one in self.written])

    def nested(
        self, pairs: Sequence[Tag], alone: Sequence[Tag], bounds: tuple[int, int], inside: np.ndarray
    ) -> tuple[list[_Pair], list[_Point]]:
        """Return the `_Pair`s and `_Point`s within a range of words, from the tags within it.

        Args:
            pairs, alone: the tags.
            bounds: the range.
            inside: which words of the source (S,) it belongs to.
        """
        outermost: list[Tag] = []
        inner: dict[int, list[Tag]] = {}
        for tag in pairs:  # outer ones first
            holder = _holder(tag, outermost)
            if holder is None:
                inner[len(outermost)] = []
                outermost.append(tag)
            else:
                inner[holder].append(tag)
        free = np.zeros(len(self.written), bool)
        free[slice(*bounds)] = True
        ranges: dict[int, tuple[int, int]] = {}
        for index in sorted(range(len(outermost)), key=lambda i: outermost[i].start - outermost[i].end):
            ranges[index] = start, stop = self._range(outermost[index], bounds, free)
            free[start:stop] = False
        tree: list[_Pair] = []
        kept: list[Tag] = []
        held: dict[int, list[Tag]] = {index: [] for index in ranges}
        for tag in alone:
            holder = _holder(tag, outermost)
            (kept if holder is None else held[holder]).append(tag)
        for index, tag in enumerate(outermost):
            own, points = self.nested(inner[index], held[index], ranges[index], self.covered(tag))
            tree.append(_Pair(tag, *ranges[index], own, points))
        points = []
        for tag in kept:
            position = self._position(tag, bounds, inside)
            within = next((one for one in tree if one.start < position < one.stop), None)
            points.append(_Point(tag, within.stop if within else position))
        return sorted(tree, key=lambda pair: (pair.start, pair.stop)), points

    def _range(self, tag: Tag, bounds: tuple[int, int], free: np.ndarray) -> tuple[int, int]:
        """Return the words (start, stop) that a pair of tags surrounds, all of them `free` (T,); none at the end.

        It begins and ends with a punctuation mark only if it does so in the source, and does not begin with one that
        belongs to the word before it.
        """
        low, high = bounds
        if low == high:
            return high, high
        covered = self.covered(tag)
        first, last = self.source_has_letters[np.flatnonzero(covered)[[0, -1]]]
        scores = np.where(free, self.shares(covered) - HALF, -1e9)[low:high]
        start, stop = (low + one for one in best_range(scores))
        before = self.text[: tag.start][-1:]
        adjoins = bool(before) and not before.isspace()
        if first or last:
            candidates = (free & self.has_letters)[low:high]
            if candidates.any() and not self.has_letters[start:stop].any():
                start = low + int(np.where(candidates, scores, -np.inf).argmax())
                stop = start + 1
        while (
            start < stop
            and not self.has_letters[start]
            and (first or not (start == 0 or adjoins or self.written[start].gap))
        ):
            start += 1
        while last and start < stop and not self.has_letters[stop - 1]:
            stop -= 1
        return (start, stop) if start < stop and free[start:stop].all() else (high, high)

    def _position(self, tag: Tag, bounds: tuple[int, int], inside: np.ndarray) -> int:
        """Return before which word of a range a lone tag belongs; `inside`: which words of the source (S,) it has."""
        low, high = bounds
        before = np.flatnonzero(inside & (self.source_words[:, 0] < tag.start))
        if not len(before):
            return low
        if len(before) == inside.sum():
            return high
        column = self.shares(np.arange(len(self.source_words)) == before[-1])[low:high]
        return low + int(column.argmax()) + 1 if len(column) and column.max() > 0 else high


def _joined(written, low, high, tree, points):
    """Return the text of a range of words with its tags; the white space before its first word is left out."""
    text, position, pairs = "", low, list(tree)
    while True:
        here = [point.tag for point in points if point.position == position]
        left = [tag for tag in here if not tag.spaces[0] or position == high]
        right = [tag for tag in here if tag not in left]
        tight = any(tag.spaces == (False, False) for tag in left)
        for tag in left:
            text += (" " if tag.spaces[0] and text[-1:].strip() else "") + tag.opening
        ended = position == high
        gap = "" if ended or position == low or tight else written[position].gap
        shown = "".join(tag.opening + (" " if tag.spaces[1] else "") for tag in right)
        empty = [pair for pair in pairs if pair.start == pair.stop == position]
        shown += "".join(pair.tag.opening + _joined(written, position, position, pair.inner, pair.points) +
                         pair.tag.closing for pair in empty)  # fmt: skip
        text += gap + shown
        if ended:
            return text
        pair = next((one for one in pairs if one.start == position < one.stop), None)
        if pair:
            text += pair.tag.opening + _joined(written, pair.start, pair.stop, pair.inner, pair.points)
            text += pair.tag.closing
            position = pair.stop
        else:
            text += written[position].text
            position += 1
