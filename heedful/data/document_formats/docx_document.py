"""Word files: the text of each paragraph is translated; the formatting of its words goes where the words go."""

import html
import io
import itertools
import re
import zipfile
from collections.abc import Iterator
from typing import NamedTuple

from heedful.config.protected import Protection
from heedful.core.errors import InputError
from heedful.data.document_formats.document import Document, ends_of
from heedful.data.document_formats.xml_events import Event, xml_events
from heedful.data.markup.marked_text import MarkedText, Slot, Tag, html_escaped

NO_BREAK_HYPHEN = "\u2011"
MARKS = (  # between which words stay together, within a sentence
    "bookmarkStart", "bookmarkEnd", "commentRangeStart", "commentRangeEnd", "commentReference", "delText",
    "delInstrText",
)  # fmt: skip
DIVISIBLE = ("hyperlink", "ins", "smartTag")  # what holds runs, and may begin anew after others
WEIGHT = 1000  # of a piece in a link, in characters, see `_in_place`
WITHIN_TEXT = ("lastRenderedPageBreak", "proofErr", "softHyphen")  # in a run, and no part of its text
_PARTS = re.compile(r"word/(?:document|header\d*|footer\d*|footnotes|endnotes|comments)\.xml")
MAX_SIZE, MAX_RATIO = 200_000_000, 200  # bytes of all parts; of unpacked by packed size
# Names of styles for code, as Word ("HTML Code"), LibreOffice ("Source Text") and pandoc ("Verbatim Char") have them.
_CODE = re.compile(
    r"(?:(?:source|html|inline|program)[ _-]?)?code(?:[ _-]?(?:char|block|text))?|verbatim(?: ?char)?|source ?text|"
    r"(?:html )?preformatted(?: text)?(?: char)?|macro(?: text)?|html (?:keyboard|sample|typewriter|variable)",
    re.IGNORECASE,
)


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


def read(content: bytes, name: str, protection: Protection) -> Document:
    """Read a Word file.

    Raises:
        InputError: it is not a Word file, is damaged, or is much larger unpacked than packed.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
        infos = archive.infolist()
        read_parts = [info for info in infos if _PARTS.fullmatch(info.filename)]
        size = sum(info.file_size for info in infos)
        if size > MAX_SIZE or any(one.file_size > 1 << 20 and one.file_size > MAX_RATIO * max(1, one.compress_size)
                                  for one in infos):  # fmt: skip
            raise InputError(f"{name} unpacks to far more than its size: it is refused.")
        files = {info.filename: archive.read(info) for info in infos}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise InputError(f"{name} is not a Word file: {error}.") from error
    if "word/document.xml" not in files:
        raise InputError(f"{name} is not a Word file: it has no word/document.xml.")
    styles = files.get("word/styles.xml")
    code_styles = _code_styles(styles, f"{name}, word/styles.xml") if styles else set()
    texts: list[MarkedText] = []
    paragraphs: list[tuple[str, Paragraph]] = []
    for info in read_parts:
        for paragraph in _paragraphs(files[info.filename], f"{name}, {info.filename}", code_styles):
            text = _marked(paragraph.groups, protection)
            if not text.wordless:
                texts.append(text)
                paragraphs.append((info.filename, paragraph))

    def written(results) -> bytes:
        changes: dict[str, list[tuple[int, int, str]]] = {}
        for (part, paragraph), result in zip(paragraphs, results, strict=True):
            changes.setdefault(part, []).extend(_changes(paragraph, result))
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as target:
            for info in infos:
                new = _changed(files[info.filename], changes.get(info.filename, []))
                target.writestr(zipfile.ZipInfo(info.filename, info.date_time), new, compress_type=info.compress_type)
        return packed.getvalue()

    return Document(texts, written)


def _paragraphs(content, name, code_styles):
    """Yield each paragraph that is no code; one within another, as in a text box, comes first."""
    open_paragraphs: list[list[Text]] = []
    code_depths: set[int] = set()  # of paragraphs of code, among the open ones
    stack: list[tuple[str, int, int]] = []
    formats: list[tuple[bytes, str]] = []  # of open runs: the element, and the style that it names
    mark = 0  # where the last bookmark, or border of a comment, stands
    word_prefix = None  # of Word's own elements: that of the outermost one
    for event in xml_events(content, name):
        word_prefix = event.prefix if word_prefix is None else word_prefix
        if event.prefix != word_prefix:  # formulas and drawings have paragraphs, runs and texts of their own
            if event.name == "oMath" and open_paragraphs:
                yield from _ended(open_paragraphs, event.start)
            continue
        if event.opens:
            within = [one[0] for one in stack[-2:]]
            if event.name == "rStyle" and within == ["r", "rPr"]:
                formats[-1] = b"", _attribute(event, "val")
            elif event.name == "pStyle" and within == ["p", "pPr"] and _attribute(event, "val") in code_styles:
                code_depths.add(len(open_paragraphs))
            stack.append((event.name, event.start, event.end))
            if event.name == "p":
                open_paragraphs.append([])
                code_depths.discard(len(open_paragraphs))
            elif event.name == "r":
                formats.append((b"", ""))
            continue
        tag, start, end = stack.pop()
        parent = stack[-1][0] if stack else ""
        if tag == "rPr" and parent == "r":
            formats[-1] = content[start : event.end], formats[-1][1]
        elif tag == "r":
            formats.pop()
        elif len(open_paragraphs) in code_depths and tag != "p":
            continue
        elif tag in ("t", "noBreakHyphen") and parent == "r" and open_paragraphs:
            raw = content[end : max(end, event.start)].decode()
            text = html.unescape(raw) if tag == "t" else NO_BREAK_HYPHEN
            form, style = formats[-1]
            group, is_code = (form, _holder(stack), mark), style in code_styles
            outside, holder = _outside(stack, content)
            open_paragraphs[-1].append(Text(start, event.end, text, group, event.prefix, outside, holder, is_code))
        elif tag in MARKS:
            mark = start
        elif parent == "r" and tag not in WITHIN_TEXT and open_paragraphs:
            yield from _ended(open_paragraphs, _outside(stack, content)[0])
        elif tag == "p":
            yield Paragraph(_grouped(open_paragraphs.pop()), event.start)


def _code_styles(content: bytes, name: str) -> set[str]:
    """Return the identifiers of the styles for code."""
    styles, style = set(), ""
    for event in xml_events(content, name):
        if event.opens and event.name == "style":
            style = _attribute(event, "styleId")
        elif event.opens and event.name == "name" and _CODE.fullmatch(_attribute(event, "val").strip()):
            styles.add(style)
    return styles - {""}


def _attribute(event: Event, name: str) -> str:
    """Return the value of an attribute, whatever the prefix of its name; nothing if there is none."""
    return next((value for key, value in event.attributes.items() if key.rpartition(":")[2] == name), "")


def _holder(stack):
    """Return where the link, field or change begins that holds a run; 0 if the paragraph itself does."""
    name, start, _ = stack[-2] if len(stack) > 1 else ("p", 0, 0)
    return 0 if name == "p" else start


def _outside(stack, content):
    """Return where the outermost element in a paragraph begins that has a run, and its tag if it is `DIVISIBLE`."""
    within = list(itertools.takewhile(lambda one: one[0] != "p", reversed(stack)))
    name, start, end = within[-1]
    return start, content[start:end].decode() if len(within) == 2 and name in DIVISIBLE else ""


def _ended(open_paragraphs, end):
    """Yield what stands before a formula, a picture, a footnote's mark or a line break: it is a text of its own."""
    if open_paragraphs[-1]:
        yield Paragraph(_grouped(open_paragraphs[-1]), end)
        open_paragraphs[-1] = []


def _grouped(texts):
    """Return adjoining texts in groups, see `Text`."""
    groups: list[list[Text]] = []
    for text in texts:
        if groups and groups[-1][-1].group == text.group:
            groups[-1].append(text)
        else:
            groups.append([text])
    return groups


def _marked(groups, protection):
    """Return the text of a paragraph; each group is a pair of tags that names it, and one of code is protected."""
    space, text, _ = ends_of(_content(groups))
    lead, tags, slots, end = len(space), [], [], 0
    before, after, closing = _marks(groups)
    for number, group in enumerate(groups):
        start, end = end, end + sum(len(one.content) for one in group)
        first, last = (min(max(0, one - lead), len(text)) for one in (start, end))
        opening = f"{before}{number}{after}"
        if group[0].is_code and (code := text[first:last].strip()):
            begin = text.index(code, first)
            slots.append(Slot(begin, begin + len(code), f"{opening}{code}{closing}", "code"))
        elif len(groups) > 1:
            tags.append(Tag(first, last, opening, closing, (2 * number, 2 * number + 1)))
    codes = list(slots)
    slots += [
        Slot(span.start, span.end, text[span.start : span.end], span.kind) for span in protection.spans(text)
        if all(span.end <= code.start or span.start >= code.end for code in codes)
    ]  # fmt: skip
    return MarkedText(text, tags, sorted(slots), [])


def _marks(groups):
    """Return characters that the texts lack: they stand around the number of a group, and at its end."""
    used = set(_content(groups))
    return list(itertools.islice((mark for mark in map(chr, range(0xE000, 0xF900)) if mark not in used), 3))


def _content(groups):
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
    start, stop, closing = _marks(groups)
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

    What is in a link or a field, or behind a mark, weighs more: it stays, and the words around it are moved.
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


def _changes(paragraph: Paragraph, result: str) -> Iterator[tuple[int, int, str]]:
    """Yield the start, end and new content of what changes in a paragraph.

    The runs of a paragraph keep their order. Where a translation has another one, words are written into new runs:
    after the run before them, which begins anew, or else outside of the link or field that follows.
    """
    groups = paragraph.groups
    pieces = _pieces(groups, result)
    fixed = _in_place(pieces, groups)
    lead, _, trail = ends_of(_content(groups))  # which is not translated
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


def _changed(content, changes):
    """Return the content of a part with new elements."""
    parts, position = [], 0
    for start, end, new in sorted(changes):
        parts += [content[position:start], new.encode()]
        position = end
    return b"".join([*parts, content[position:]])
