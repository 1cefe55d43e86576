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
from heedful.data.document_formats.xml_events import xml_events
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
    r"\b(?:code|verbatim|preformatted|source text|macro|html (?:keyboard|sample|typewriter|variable))\b", re.I
)
_STYLE = re.compile(rb"<(\w+:)?style\s[^>]*?\bstyleId=[\"']([^\"']*)[\"'][^>]*>(?:(?!</\1style>).)*?"
                    rb"<\1name\s[^>]*?val=[\"']([^\"']*)", re.DOTALL)  # fmt: skip
_STYLE_USED = re.compile(rb"<(?:\w+:)?[pr]Style\s[^>]*?val=[\"']([^\"']*)")
_OPEN, _CLOSE, _END = "\ue000", "\ue001", "\ue002"  # around the number of a run; at its end


class Text(NamedTuple):
    """A text element of a paragraph: the bytes of its element, and its content.

    `group` is the format of its run, the start of the link, field or change around the run (0: none), and the last mark
    before it. Adjoining texts with the same value are translated as one piece. `holder` is the opening tag of a link or
    change around the run, of which there may be several; `is_code` tells whether the style of the run is for code.
    """

    start: int
    end: int
    content: str
    group: tuple[bytes, int, int]
    prefix: str
    holder: str = ""
    is_code: bool = False


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
    code_styles = {
        match[2] for match in _STYLE.finditer(files.get("word/styles.xml", b"")) if _CODE.search(match[3].decode())
    }
    texts: list[MarkedText] = []
    paragraphs: list[tuple[str, list[list[Text]]]] = []
    for info in read_parts:
        for paragraph in _paragraphs(files[info.filename], f"{name}, {info.filename}", code_styles):
            groups = _grouped(paragraph)
            text = _marked(groups, protection)
            if not text.wordless:
                texts.append(text)
                paragraphs.append((info.filename, groups))

    def written(results) -> bytes:
        changes: dict[str, list[tuple[int, int, str]]] = {}
        for (part, groups), result in zip(paragraphs, results, strict=True):
            changes.setdefault(part, []).extend(_changes(groups, result))
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as target:
            for info in infos:
                new = _changed(files[info.filename], changes.get(info.filename, []))
                target.writestr(zipfile.ZipInfo(info.filename, info.date_time), new, compress_type=info.compress_type)
        return packed.getvalue()

    return Document(texts, written)


def _paragraphs(content, name, code_styles):
    """Yield the texts of each paragraph that is no code; one within another, as in a text box, comes first."""
    open_paragraphs: list[list[Text]] = []
    code_depths: set[int] = set()  # of paragraphs of code, among the open ones
    stack: list[tuple[str, int, int]] = []
    formats: list[bytes] = []
    mark = 0  # where the last bookmark, or border of a comment, stands
    word_prefix = None  # of Word's own elements: that of the outermost one
    for event in xml_events(content, name):
        word_prefix = event.prefix if word_prefix is None else word_prefix
        if event.prefix != word_prefix:  # formulas and drawings have paragraphs, runs and texts of their own
            if event.name == "oMath" and open_paragraphs:
                yield from _ended(open_paragraphs)
            continue
        if event.opens:
            stack.append((event.name, event.start, event.end))
            if event.name == "p":
                open_paragraphs.append([])
                code_depths.discard(len(open_paragraphs))
            elif event.name == "r":
                formats.append(b"")
            continue
        tag, start, end = stack.pop()
        parent = stack[-1][0] if stack else ""
        if tag == "rPr" and parent == "r":
            formats[-1] = content[start : event.end]
        elif tag == "r":
            formats.pop()
        elif tag == "pStyle" and _style_of(content[start:end]) in code_styles:
            code_depths.add(len(open_paragraphs))
        elif len(open_paragraphs) in code_depths and tag != "p":
            continue
        elif tag in ("t", "noBreakHyphen") and parent == "r" and open_paragraphs:
            raw = content[end : max(end, event.start)].decode()
            text = html.unescape(raw) if tag == "t" else NO_BREAK_HYPHEN
            group, is_code = (formats[-1], _holder(stack), mark), _style_of(formats[-1]) in code_styles
            holder = _opening_tag(stack, content)
            open_paragraphs[-1].append(Text(start, event.end, text, group, event.prefix, holder, is_code))
        elif tag in MARKS:
            mark = start
        elif parent == "r" and tag not in WITHIN_TEXT and open_paragraphs:
            yield from _ended(open_paragraphs)
        elif tag == "p":
            yield open_paragraphs.pop()


def _style_of(element):
    """Return the name of the style that a format refers to; nothing if there is none."""
    match = _STYLE_USED.search(element)
    return match[1] if match else b""


def _holder(stack):
    """Return where the link, field or change begins that holds a run; 0 if the paragraph itself does."""
    name, start, _ = stack[-2] if len(stack) > 1 else ("p", 0, 0)
    return 0 if name == "p" else start


def _opening_tag(stack, content):
    """Return the opening tag of the link or change that holds a run; nothing for what cannot begin anew."""
    name, start, end = stack[-2] if len(stack) > 1 else ("p", 0, 0)
    return content[start:end].decode() if name in DIVISIBLE else ""


def _ended(open_paragraphs):
    """Yield what stands before a formula, a picture, a footnote's mark or a line break: it is a text of its own."""
    if open_paragraphs[-1]:
        yield open_paragraphs[-1]
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
    for number, group in enumerate(groups):
        start, end = end, end + sum(len(one.content) for one in group)
        first, last = (min(max(0, one - lead), len(text)) for one in (start, end))
        opening = f"{_OPEN}{number}{_CLOSE}"
        if group[0].is_code and (code := text[first:last].strip()):
            begin = text.index(code, first)
            slots.append(Slot(begin, begin + len(code), f"{opening}{code}{_END}", "code"))
        elif len(groups) > 1:
            tags.append(Tag(first, last, opening, _END, (2 * number, 2 * number + 1)))
    codes = list(slots)
    slots += [
        Slot(span.start, span.end, text[span.start : span.end], span.kind) for span in protection.spans(text)
        if all(span.end <= code.start or span.start >= code.end for code in codes)
    ]  # fmt: skip
    return MarkedText(text, tags, sorted(slots), [])


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
    for part in re.split(f"({_OPEN}\\d+{_CLOSE}|{_END})", result):
        if part.startswith(_OPEN):
            opened.append(int(part[1:-1]))
            before, current = current, opened[-1]
            holder = current if groups[current][0].content[:1].isspace() else before
            plain = plain if groups[current][0].is_code else current
        elif part == _END:
            opened.pop()
            holder, current = current, opened[-1] if opened else plain
        elif part.isspace():
            between += part  # a space between two groups belongs to the one that had one
            continue
        else:
            holder = current
        if between:
            pieces.append(Piece(holder, between))
            between = ""
        if part and part[0] not in (_OPEN, _END):
            pieces.append(Piece(current, part))
    joined = [
        Piece(group, "".join(piece.text for piece in same))
        for group, same in itertools.groupby(pieces, key=lambda piece: piece.group)
    ]
    return [*joined[:-1], joined[-1]._replace(text=joined[-1].text.rstrip())] if joined else []


def _in_place(pieces: list[Piece], groups: list[list[Text]]) -> set[int]:
    """Return which pieces can stay in the runs of their groups, whose order is fixed: as much text as possible.

    What is in a link or a field weighs more: it stays, and the words around it are moved.
    """
    weights = [len(piece.text) + (WEIGHT if groups[piece.group][0].group[1] else 0) for piece in pieces]
    best: list[tuple[int, tuple[int, ...]]] = []  # of the pieces up to each one, with it: weight and indices
    for index, piece in enumerate(pieces):
        earlier = (best[i] for i in range(index) if pieces[i].group <= piece.group)
        weight, indices = max(earlier, default=(0, ()))
        best.append((weight + weights[index], (*indices, index)))
    return set(max(best, default=(0, ()))[1])


def _changes(groups: list[list[Text]], result: str) -> Iterator[tuple[int, int, str]]:
    """Yield the start, end and new content of each text of a paragraph.

    The runs of a paragraph keep their order. Where a translation has another one, words are written into new runs.
    """
    pieces = _pieces(groups, result)
    fixed = _in_place(pieces, groups)
    lead, _, trail = ends_of(_content(groups))  # which is not translated
    parts: list[list[list[Piece]]] = [[[]] for _ in groups]  # of each group its own pieces, others, its own, ...
    host = min((pieces[index].group for index in fixed), default=0)
    for index, piece in enumerate(pieces):
        host = piece.group if index in fixed else host
        if (index in fixed) == (len(parts[host]) % 2 == 0):
            parts[host].append([])
        parts[host][-1].append(piece)
    parts[0][0].insert(0, Piece(0, lead))
    parts[-1] += [[]] if len(parts[-1]) % 2 == 0 else []
    parts[-1][-1].append(Piece(len(groups) - 1, trail))
    for number, group in enumerate(groups):
        content = "".join(
            _new_runs(groups, number, part) if index % 2 else _element(group, "".join(piece.text for piece in part))
            for index, part in enumerate(parts[number])
        )
        for index, text in enumerate(group):
            yield text.start, text.end, content if index == 0 else _element(group, "")


def _element(group: list[Text], content: str) -> str:
    """Return a text element."""
    name = f"{group[0].prefix}:t" if group[0].prefix else "t"
    return f'<{name} xml:space="preserve">{html_escaped(content)}</{name}>'


def _new_runs(groups: list[list[Text]], host: int, pieces: list[Piece]) -> str:
    """Return runs of pieces of other groups, to be written into the run of a group, which ends and begins anew."""
    prefix = f"{groups[host][0].prefix}:" if groups[host][0].prefix else ""

    def ends(group: int) -> tuple[str, str]:
        text = groups[group][0]
        name = re.match(r"<([^\s/>]+)", text.holder)
        opening = f"{text.holder}<{prefix}r>{text.group[0].decode()}"
        return opening, f"</{prefix}r>" + (f"</{name[1]}>" if name else "")

    runs = "".join(
        f"{ends(piece.group)[0]}{_element(groups[piece.group], piece.text)}{ends(piece.group)[1]}" for piece in pieces
    )
    return f"{ends(host)[1]}{runs}{ends(host)[0]}"


def _changed(content, changes):
    """Return the content of a part with new elements."""
    parts, position = [], 0
    for start, end, new in sorted(changes):
        parts += [content[position:start], new.encode()]
        position = end
    return b"".join([*parts, content[position:]])
