"""Word files: the text of each paragraph is translated; the formatting of its words goes where the words go."""

import html
import io
import re
import zipfile
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
WITHIN_TEXT = ("lastRenderedPageBreak", "proofErr", "softHyphen")  # in a run, and no part of its text
_PARTS = re.compile(r"word/(?:document|header\d*|footer\d*|footnotes|endnotes|comments)\.xml")
MAX_SIZE, MAX_RATIO = 200_000_000, 200  # bytes of all parts; of unpacked by packed size
_OPEN, _CLOSE, _END = "\ue000", "\ue001", "\ue002"  # around the number of a run; at its end


class Text(NamedTuple):
    """A text element of a paragraph: the bytes of its element, and its content.

    `group` is the format of its run, the start of the link, field or change around the run (0: none), and the last mark
    before it. Adjoining texts with the same value are translated as one piece.
    """

    start: int
    end: int
    content: str
    group: tuple[bytes, int, int]
    prefix: str


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
    texts: list[MarkedText] = []
    paragraphs: list[tuple[str, list[list[Text]]]] = []
    for info in read_parts:
        for paragraph in _paragraphs(files[info.filename], f"{name}, {info.filename}"):
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


def _paragraphs(content, name):
    """Yield the texts of each paragraph; a paragraph within another, as in a text box, comes first."""
    open_paragraphs: list[list[Text]] = []
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
            elif event.name == "r":
                formats.append(b"")
            continue
        tag, start, end = stack.pop()
        parent = stack[-1][0] if stack else ""
        if tag == "rPr" and parent == "r":
            formats[-1] = content[start : event.end]
        elif tag == "r":
            formats.pop()
        elif tag == "t" and parent == "r" and open_paragraphs:
            raw = content[end : max(end, event.start)].decode()
            open_paragraphs[-1].append(
                Text(start, event.end, html.unescape(raw), (formats[-1], _holder(stack), mark), event.prefix)
            )
        elif tag == "noBreakHyphen" and parent == "r" and open_paragraphs:
            group = formats[-1], _holder(stack), mark
            open_paragraphs[-1].append(Text(start, event.end, NO_BREAK_HYPHEN, group, event.prefix))
        elif tag in MARKS:
            mark = start
        elif parent == "r" and tag not in WITHIN_TEXT and open_paragraphs:
            yield from _ended(open_paragraphs)
        elif tag == "p":
            yield open_paragraphs.pop()


def _holder(stack):
    """Return where the link, field or change begins that holds a run; 0 if the paragraph itself does."""
    name, start, _ = stack[-2] if len(stack) > 1 else ("p", 0, 0)
    return 0 if name == "p" else start


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
    """Return the text of a paragraph; each group is a pair of tags that names it."""
    space, text, _ = ends_of(_content(groups))
    lead, tags, end = len(space), [], 0
    for number, group in enumerate(groups):
        start, end = end, end + sum(len(one.content) for one in group)
        if len(groups) > 1:
            first, last = (min(max(0, one - lead), len(text)) for one in (start, end))
            tags.append(Tag(first, last, f"{_OPEN}{number}{_CLOSE}", _END, (2 * number, 2 * number + 1)))
    slots = [Slot(span.start, span.end, text[span.start : span.end], span.kind) for span in protection.spans(text)]
    return MarkedText(text, tags, slots, [])


def _content(groups):
    return "".join(text.content for group in groups for text in group)


def _changes(groups, result):
    """Yield the start, end and new element of each text of a paragraph."""
    shares = [""] * len(groups)
    if len(groups) == 1:
        shares[0] = result
    current, between = 0, ""
    for piece in re.split(f"({_OPEN}\\d+{_CLOSE}|{_END})", result) if len(groups) > 1 else ():
        if piece.startswith(_OPEN):
            before, current = current, int(piece[1:-1])
            shares[current if groups[current][0].content[:1].isspace() else before] += between
            between = ""
        elif piece.isspace():
            between += piece  # a space between two groups belongs to the one that had one
        elif piece != _END:
            shares[current] += between + piece
            between = ""
    lead, _, trail = ends_of(_content(groups))  # which is not translated
    last = max((index for index, share in enumerate(shares) if share.strip()), default=0)
    shares[last:] = [shares[last].rstrip(), *[""] * (len(shares) - last - 1)]
    shares[0] = lead + shares[0]
    shares[-1] += trail
    for group, share in zip(groups, shares, strict=True):
        for index, text in enumerate(group):
            content = html_escaped(share) if index == 0 else ""
            name = f"{text.prefix}:t" if text.prefix else "t"
            yield text.start, text.end, f'<{name} xml:space="preserve">{content}</{name}>'


def _changed(content, changes):
    """Return the content of a part with new elements."""
    parts, position = [], 0
    for start, end, new in sorted(changes):
        parts += [content[position:start], new.encode()]
        position = end
    return b"".join([*parts, content[position:]])
