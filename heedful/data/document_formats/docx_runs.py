"""Translations in the runs of Word paragraphs: formats go with the words, in the order of the translation."""

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from heedful.data.document_formats.document import ends_of
from heedful.data.markup.marked_text import html_escaped

WEIGHT = 1000  # of a piece in a link, in characters, see `_in_place`


class Text(NamedTuple):
    """A text element of a paragraph: the bytes of its element, and its content.

    `group` is the format of its run, the start of the link, field or change around the run (0: none), and the last mark
    before it. Adjoining texts with the same value are translated as one piece. `outside` is where the outermost element
    begins that has the run; `holder` is the tag of that if it is a link or change, of which there may be several.
    `is_code` tells whether the style of the run is for code.
    """

    start: int
    end: int
    content: str
    group: tuple[bytes, int, int]
    prefix: str
    outside: int
    holder: str
    is_code: bool


class Paragraph(NamedTuple):
    """A paragraph, or a part of one: its texts in groups, see `Text`, and where runs may be added at its end."""

    groups: list[list[Text]]
    end: int


def marks_for(groups: list[list[Text]]) -> list[str]:
    """Return characters that the texts lack: they stand around the number of a group, and at its end."""
    used = set(content_of(groups))
    return list(itertools.islice((mark for mark in map(chr, range(0xE000, 0xF900)) if mark not in used), 3))


def content_of(groups: list[list[Text]]) -> str:
    """Return the text of groups."""
    return "".join(text.content for group in groups for text in group)


class Piece(NamedTuple):
    """A part of a translation, in the format of a group of texts of its source."""

    group: int
    text: str


def _pieces(groups: list[list[Text]], result: str) -> list[Piece]:
    """Return the parts of a translation, in order; `result` has marks around the text of each group."""
    pieces, opened, between = [], [], ""
    plain = next((number for number, group in enumerate(groups) if not group[0].is_code), 0)  # of what has no marks
    current = plain
    start, stop, closing = marks_for(groups)
    for index, part in enumerate(re.split(f"({start}[0-9]+{stop}|{closing})", result)):
        before, is_mark = current, index % 2 == 1
        if is_mark and part != closing and int(part[1:-1]) < len(groups):
            opened.append(int(part[1:-1]))
            current = opened[-1]
            plain = plain if groups[current][0].is_code else current
        elif is_mark:  # it ends a group, or a model has written it
            del opened[-1:]
            current = opened[-1] if opened else plain
        elif part.isspace():
            between += part
            continue
        elif part:
            pieces += [Piece(current, between), Piece(current, part)]
            between = ""
        if between:
            pieces.append(Piece(_owner_of_space(groups, before, current), between))
            between = ""
    joined = [
        Piece(group, "".join(piece.text for piece in same))
        for group, same in itertools.groupby(pieces, key=lambda piece: piece.group)
    ]
    joined = [piece for piece in joined if piece.text]
    return [*joined[:-1], joined[-1]._replace(text=joined[-1].text.rstrip())] if joined else []


def _owner_of_space(groups: list[list[Text]], before: int, after: int) -> int:
    """Return which of two groups a space between them belongs to: one that had it, else one that is in no link."""
    if groups[after][0].content[:1].isspace():
        return after
    in_link = bool(groups[before][0].group[1]) and not groups[before][-1].content[-1:].isspace()
    return after if in_link else before


def _in_place(pieces: list[Piece], groups: list[list[Text]]) -> set[int]:
    """Return which pieces can stay in the runs of their groups, whose order is fixed: as much text as possible.

    Text in a link or a field, or after a bookmark of the paragraph, has a greater weight, so that the words around it
    are moved instead.
    """
    _, _, first_mark = groups[0][0].group
    weights = []
    for piece in pieces:
        _, holder, mark = groups[piece.group][0].group
        weights.append(len(piece.text) + (WEIGHT if holder or mark != first_mark else 0))
    totals: list[int] = []  # of the pieces that stay up to each one, with it
    earlier: list[int | None] = []  # the one that stays before it
    for index, piece in enumerate(pieces):
        before = max((i for i in range(index) if pieces[i].group <= piece.group), key=totals.__getitem__, default=None)
        totals.append(weights[index] + (0 if before is None else totals[before]))
        earlier.append(before)
    fixed, last = set(), max(range(len(pieces)), key=totals.__getitem__, default=None)
    while last is not None:
        fixed.add(last)
        last = earlier[last]
    return fixed


def changes_of(paragraph: Paragraph, result: str) -> Iterator[tuple[int, int, str]]:
    """Yield the start, end and new content of what changes in a paragraph.

    The runs of a paragraph keep their order. Where a translation has another one, words are written into new runs:
    after the run before them, which begins anew, or else outside of the link or field that follows.
    """
    groups = paragraph.groups
    pieces = _pieces(groups, result)
    fixed = _in_place(pieces, groups)
    lead, _, trail = ends_of(content_of(groups))  # which is not translated
    contents: list[list[tuple[bool, str]]] = [[] for _ in groups]  # texts, and runs between them: whether it is runs
    inserted: dict[int, str] = {}
    host = None
    for is_fixed, run in itertools.groupby(enumerate(pieces), key=lambda one: one[0] in fixed):
        numbered = list(run)
        if is_fixed:
            for _, piece in numbered:
                host = piece.group
                contents[host].append((False, piece.text))
            continue
        following = next((pieces[i].group for i in range(numbered[-1][0] + 1, len(pieces)) if i in fixed), None)
        runs = "".join(_run(groups[piece.group], piece.text) for _, piece in numbered)
        beside = next((one for one in (host, following) if one is not None and _is_plain(groups[one])), None)
        if beside is not None:
            contents[beside].append((True, _run_end(groups[beside]) + runs + _run_start(groups[beside])))
        else:
            place = paragraph.end if following is None else groups[following][0].outside
            inserted[place] = inserted.get(place, "") + runs
    contents[0].insert(0, (False, lead))
    contents[-1].append((False, trail))
    yield from ((place, place, runs) for place, runs in inserted.items())
    for group, parts in zip(groups, contents, strict=True):
        for index, text in enumerate(group):
            yield text.start, text.end, _elements(group, parts if index == 0 else [])


def _is_plain(group: list[Text]) -> bool:
    """Return whether the runs of a group stand in the paragraph itself."""
    return not group[0].group[1]


def _elements(group: list[Text], parts: list[tuple[bool, str]]) -> str:
    """Return text elements of parts of a text, between which there may be runs; see `_changes`."""
    written = ""
    for is_runs, same in itertools.groupby((part for part in parts if part[1]), key=lambda part: part[0]):
        content = "".join(text for _, text in same)
        written += content if is_runs else _element(group, content)
    return written or _element(group, "")


def _element(group: list[Text], content: str) -> str:
    name = f"{group[0].prefix}:t" if group[0].prefix else "t"
    return f'<{name} xml:space="preserve">{html_escaped(content)}</{name}>'


def _run_start(group: list[Text]) -> str:
    prefix = f"{group[0].prefix}:" if group[0].prefix else ""
    return f"<{prefix}r>{group[0].group[0].decode()}"


def _run_end(group: list[Text]) -> str:
    return f"</{group[0].prefix}:r>" if group[0].prefix else "</r>"


def _run(group: list[Text], content: str) -> str:
    """Return a run with the format of a group, in a link or change of its own if the group is in one."""
    holder = group[0].holder
    name = re.match(r"<([^\s/>]+)", holder)
    run = f"{holder}{_run_start(group)}{_element(group, content)}{_run_end(group)}"
    return run + (f"</{name[1]}>" if name else "")
