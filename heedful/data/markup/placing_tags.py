"""Where tags go in a translation, by the alignment of its words with those of the source.

Axes: T words of the translation, S words of the source.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from heedful.data.markup.marked_text import Tag
from heedful.data.markup.placing import HALF, WrittenWord, best_range
from heedful.data.markup.words import Word


def _shares(written: Sequence[WrittenWord], covered: np.ndarray) -> np.ndarray:
    """Return how much of each word belongs to some words of the source, given as a mask (S,) of the whole text."""
    return np.array([one.row @ covered[one.first : one.first + len(one.row)] for one in written])


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


def place_tags(written: Sequence[WrittenWord], source_words: Sequence[Word], tags: Sequence[Tag]) -> str:
    """Return a translation with its tags, well-formed if those of the source are nested.

    Args:
        written: its words, with what they belong to.
        source_words: of the whole text.
        tags: of the whole text.
    """
    bounds = np.array([tuple(word) for word in source_words]).reshape(-1, 2)
    in_order = sorted(tags, key=lambda tag: tag.order)
    pairs = [tag for tag in in_order if tag.closing and _covered(tag, bounds).any()]
    alone = [tag if not tag.closing else _emptied(tag) for tag in in_order if tag not in pairs]
    tree, points = _nested(pairs, alone, (0, len(written)), written, bounds, np.ones(len(bounds), bool))
    return _joined(written, 0, len(written), tree, points)


def _emptied(tag: Tag) -> Tag:
    """Return a pair of tags around no word as one that stands alone."""
    return Tag(tag.start, tag.start, tag.opening + tag.closing, "", tag.order, (True, False))


def _holder(tag: Tag, outermost: Sequence[Tag]) -> int | None:
    """Return the index of the tag that a tag is in; None if it is in none."""
    return next((index for index, one in enumerate(outermost) if _inside(tag, one)), None)


def _inside(tag: Tag, outer: Tag) -> bool:
    return outer.order[0] < tag.order[0] and tag.order[1] < outer.order[1]


def _covered(tag: Tag, source_words: np.ndarray) -> np.ndarray:
    """Return which words of the source (S,) a tag surrounds, at least in part."""
    return (source_words[:, 0] < tag.end) & (source_words[:, 1] > tag.start)


def _nested(
    pairs: Sequence[Tag],
    alone: Sequence[Tag],
    bounds: tuple[int, int],
    written: Sequence[WrittenWord],
    source_words: np.ndarray,
    inside: np.ndarray,
) -> tuple[list[_Pair], list[_Point]]:
    """Return the `_Pair`s and `_Point`s within a range of words, from the tags within it."""
    outermost: list[Tag] = []
    inner: dict[int, list[Tag]] = {}
    for tag in pairs:  # outer ones first
        holder = _holder(tag, outermost)
        if holder is None:
            inner[len(outermost)] = []
            outermost.append(tag)
        else:
            inner[holder].append(tag)
    low, high = bounds
    free = np.zeros(len(written), bool)
    free[low:high] = True
    ranges: dict[int, tuple[int, int]] = {}
    for index in sorted(range(len(outermost)), key=lambda i: outermost[i].start - outermost[i].end):
        tag = outermost[index]
        scores = np.where(free, _shares(written, _covered(tag, source_words)) - HALF, -1e9)
        start, stop = best_range(scores[low:high]) if high > low else (0, 0)
        start, stop = low + start, low + stop
        if stop == start or not free[start:stop].all():
            start = stop = high
        free[start:stop] = False
        ranges[index] = start, stop
    tree: list[_Pair] = []
    kept: list[Tag] = []
    held: dict[int, list[Tag]] = {index: [] for index in ranges}
    for tag in alone:
        holder = _holder(tag, outermost)
        (kept if holder is None else held[holder]).append(tag)
    for index, tag in enumerate(outermost):
        covered = _covered(tag, source_words)
        own, points = _nested(inner[index], held[index], ranges[index], written, source_words, covered)
        tree.append(_Pair(tag, *ranges[index], own, points))
    points = []
    for tag in kept:
        position = _position(tag, bounds, written, source_words, inside)
        within = next((one for one in tree if one.start < position < one.stop), None)
        points.append(_Point(tag, within.stop if within else position))
    return sorted(tree, key=lambda pair: (pair.start, pair.stop)), points


def _position(
    tag: Tag, bounds: tuple[int, int], written: Sequence[WrittenWord], source_words: np.ndarray, inside: np.ndarray
) -> int:
    """Return before which word of a range a lone tag belongs; `inside`: which words of the source (S,) are its own."""
    low, high = bounds
    before = np.flatnonzero(inside & (source_words[:, 0] < tag.start))
    if not len(before):
        return low
    if len(before) == inside.sum():
        return high
    column = _shares(written[low:high], np.arange(len(source_words)) == before[-1])
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
