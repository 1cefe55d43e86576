"""Word files: the text of each paragraph is translated; the formatting of its words goes where the words go."""

import html
import io
import itertools
import re
import zipfile

from heedful.config.protected import Protection
from heedful.core.errors import InputError
from heedful.data.document_formats.document import Document, ends_of
from heedful.data.document_formats.docx_runs import Paragraph, Text, changes_of, content_of, marks_for
from heedful.data.document_formats.xml_events import Event, xml_events
from heedful.data.markup.marked_text import MarkedText, Slot, Tag

NO_BREAK_HYPHEN = "\u2011"
MARKS = (  # between which words stay together, within a sentence
    "bookmarkStart", "bookmarkEnd", "commentRangeStart", "commentRangeEnd", "commentReference", "delText",
    "delInstrText",
)  # fmt: skip
DIVISIBLE = ("hyperlink", "ins", "smartTag")  # what holds runs, and may begin anew after others
WITHIN_TEXT = ("lastRenderedPageBreak", "proofErr", "softHyphen")  # in a run, and no part of its text
_PARTS = re.compile(r"word/(?:document|header\d*|footer\d*|footnotes|endnotes|comments)\.xml")
MAX_SIZE, MAX_RATIO = 200_000_000, 200  # bytes of all parts; of unpacked by packed size
# Names of styles for code, as Word ("HTML Code"), LibreOffice ("Source Text") and pandoc ("Verbatim Char") have them.
_CODE = re.compile(
    r"(?:(?:source|html|inline|program)[ _-]?)?code(?:[ _-]?(?:char|block|text))?|verbatim(?: ?char)?|source ?text|"
    r"(?:html )?preformatted(?: text)?(?: char)?|macro(?: text)?|html (?:keyboard|sample|typewriter|variable)",
    re.IGNORECASE,
)


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
    except InputError:
        raise
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
            changes.setdefault(part, []).extend(changes_of(paragraph, result))
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
    space, text, _ = ends_of(content_of(groups))
    lead, tags, slots, end = len(space), [], [], 0
    before, after, closing = marks_for(groups)
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


def _changed(content, changes):
    """Return the content of a part with new elements."""
    parts, position = [], 0
    for start, end, new in sorted(changes):
        parts += [content[position:start], new.encode()]
        position = end
    return b"".join([*parts, content[position:]])
