"""A text without its markup, as a model reads it, and the markup that its translation gets back."""

import html
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from heedful.config.protected import Protection
from heedful.data.markup.html_tokens import OPAQUE, Token, html_tokens

_NUMBERED = re.compile(r"\{(/?)(\w+)\}")
# Delimiters of Markdown, links last: their ends carry the address.
_MARKDOWN = re.compile(
    r"\\.|\*\*|__|~~|\*|_|!?\[|\]\([^()\s]*(?:\([^()\s]*\))?[^()\s]*(?:\s+\"[^\"]*\")?\)|\]\[[^\]\[]*\]"
)


STAND_IN, OBJECT = 24, "\ufffc"  # characters that stand for a hidden element; what stands for one without text


class Tag(NamedTuple):
    """A pair of tags around the characters `start` to `end` of a text, or one that stands alone there.

    Args:
        start, end: equal for a tag that stands alone.
        opening, closing: the tags as written.
        order: places of the opening and the closing tag among all tags, from which follows what is within what.
        spaces: of a tag that stands alone: whether white space stood before and after it.
    """

    start: int
    end: int
    opening: str
    closing: str
    order: tuple[int, int]
    spaces: tuple[bool, bool] = (True, True)


class Slot(NamedTuple):
    """A protected span of a text, and what stands for it in the translation.

    Args:
        start, end: characters of the text.
        result: what the translation gets.
        kind: see `protected.Span`; `tag` for a tag without its counterpart, `term` for an entry of a glossary.
    """

    start: int
    end: int
    result: str
    kind: str


class MarkedText(NamedTuple):
    """A text without tags, its tags, its protected spans, and notes for the user."""

    text: str
    tags: list[Tag]
    slots: list[Slot]
    notes: list[str]

    @property
    def plain(self) -> bool:
        """Whether there is no markup."""
        return not self.tags and not self.slots

    @property
    def wordless(self) -> bool:
        """Whether nothing but markup is in the text."""
        kept, end = "", 0
        for slot in self.slots:
            kept, end = kept + self.text[end : slot.start], slot.end
        return not any(map(str.isalnum, kept + self.text[end:]))


def tags_of(text: str) -> list[Token]:
    """Return the tokens of a text with tags of XML and HTML, and numbered ones such as `{0}link{/0}`."""
    tokens: list[Token] = []
    closed = {match[2] for match in _NUMBERED.finditer(text) if match[1]}
    for token in html_tokens(text):
        if token.kind != "text" or not closed:
            tokens.append(token)
            continue
        end = 0
        for match in _NUMBERED.finditer(token.raw):
            if match[2] in closed:
                tokens.append(Token("text", "", token.raw[end : match.start()]))
                tokens.append(Token("close" if match[1] else "open", "{" + match[2], match.group()))
                end = match.end()
        tokens.append(Token("text", "", token.raw[end:]))
    return [token for token in tokens if token.raw]


def markdown_tokens(text: str) -> list[Token]:
    """Return the tokens of a line of Markdown: emphasis, links and images, and tags of HTML.

    A delimiter without its counterpart is text.
    """
    tokens: list[Token] = []
    for token in html_tokens(text):
        tokens += [token] if token.kind != "text" else _markdown_of(token.raw)
    return tokens


def _markdown_of(text: str) -> list[Token]:
    pieces: list[Token] = []
    opened: list[tuple[str, int]] = []  # delimiter and index of its piece
    end = 0
    code = [match.span() for match in re.finditer(r"(`+)(?!`).+?(?<!`)\1(?!`)", text)]
    for match in _MARKDOWN.finditer(text):
        start, stop = match.span()
        if match.group()[0] == "\\" or any(a <= start < b for a, b in code):
            continue
        mark = match.group()
        before, after = text[start - 1 : start], text[stop : stop + 1]
        name = "[" if mark[0] in "![]" else mark
        if name == "_" and (before.isalnum() and after.isalnum()):
            continue
        index = next((i for i in range(len(opened) - 1, -1, -1) if opened[i][0] == name), None)
        closes = index is not None and (mark[0] == "]" or (name != "[" and bool(before.strip())))
        opens = mark in ("[", "![") or (name != "[" and bool(after.strip()))
        if not closes and not opens:
            continue
        pieces.append(Token("text", "", text[end:start]))
        if closes and index is not None:
            _, place = opened[index]
            del opened[index:]
            pieces[place] = Token("open", name, pieces[place].raw)
            pieces.append(Token("close", name, mark))
        else:
            opened.append((name, len(pieces)))
            pieces.append(Token("text", "", mark))
        end = stop
    return [piece for piece in (*pieces, Token("text", "", text[end:])) if piece.raw]


READERS: dict[str, Callable[[str], list[Token]]] = {
    "tags": tags_of, "html": html_tokens, "xml": html_tokens, "markdown": markdown_tokens,
}  # fmt: skip


def marked(
    text: str, form: str, protection: Protection, hidden: Sequence[str] = (), codes: Sequence[str] = ()
) -> MarkedText:
    """Return a text without its markup.

    >>> marked("A <b>red</b> %s.", "tags", Protection()).text
    'A red %s.'

    Args:
        text: with markup.
        form: a key of `READERS`; `html` and `xml` decode entities too, and leave out content that is no text, such as
            code.
        protection: finds protected spans.
        hidden: names of more elements whose content is not translated.
        codes: names of elements whose content is no text either.
    """
    if form == "tags" and "<" not in text and "{/" not in text:
        return MarkedText(text, [], _slots(text, 0, protection, str), [])
    return _Reading(form in ("html", "xml"), protection, hidden, codes).read(READERS[form](text))


class _Reading:
    """Joins the text of tokens, and notes where tags and protected spans are."""

    def __init__(self, escaped: bool, protection: Protection, hidden: Sequence[str], codes: Sequence[str]):
        self.escaped, self.protection = escaped, protection
        self.hidden, self.codes = {name.lower() for name in (*hidden, *codes)}, set(codes)
        self.text = ""
        self.tags: list[Tag] = []
        self.slots: list[Slot] = []
        self.notes: list[str] = []

    def read(self, tokens: Sequence[Token]) -> MarkedText:
        partner = partners(tokens)
        begun: dict[int, int] = {}  # start of the content of opening tags
        index = 0
        while index < len(tokens):
            token = tokens[index]
            if token.kind == "text":
                self._add_text(token.raw)
            elif token.kind == "other" or token.kind == "alone":
                self._add_alone(tokens, index)
            elif index not in partner:
                self._add_unpaired(token)
            elif token.kind == "open":
                last = partner[index]
                if self._is_hidden(token):
                    self._add_hidden(tokens, index, last)
                    index = last
                elif not any(one.kind == "text" and one.raw.strip() for one in tokens[index:last]):
                    self._add_alone(tokens, index, last)
                    index = last
                else:
                    begun[index] = len(self.text)
            else:
                first = partner[index]
                self.tags.append(Tag(begun[first], len(self.text), tokens[first].raw, token.raw, (first, index)))
            index += 1
        return MarkedText(self.text, self.tags, self.slots, self.notes)

    def _is_hidden(self, token: Token) -> bool:
        return token.name in self.hidden or (self.escaped and (token.name in OPAQUE or token.hidden))

    def _add_text(self, raw: str) -> None:
        text = re.sub(r"\s+", " ", html.unescape(raw)) if self.escaped else raw
        if self.tags and self.tags[-1].start == self.tags[-1].end == len(self.text) and self.text[-1:].isspace():
            text = text.lstrip(" ")  # a tag stood between two spaces
        written = html_escaped if self.escaped else str
        self.slots += _slots(text, len(self.text), self.protection, written)
        self.text += text

    def _add_alone(self, tokens: Sequence[Token], index: int, last: int | None = None) -> None:
        last = index if last is None else last
        following = next((one.raw for one in tokens[last + 1 :] if one.kind == "text"), " ")
        spaces = not self.text or self.text[-1].isspace(), not following or following[0].isspace()
        if not any(spaces):
            self.text += " "  # else the words beside it would become one
        raw = "".join(one.raw for one in tokens[index : last + 1])
        self.tags.append(Tag(len(self.text), len(self.text), raw, "", (index, last), spaces))

    def _add_hidden(self, tokens: Sequence[Token], first: int, last: int) -> None:
        """Add an element whose content is not translated; a model reads the beginning of its text in its place."""
        raw = "".join(one.raw for one in tokens[first : last + 1])
        shown = "".join(html.unescape(one.raw) for one in tokens[first:last] if one.kind == "text").strip()[:STAND_IN]
        if shown and tokens[first].name not in self.codes:
            self._add_slot(raw, "code", shown)
        elif self.protection.numbered_kinds:
            self._add_slot(raw, "code", OBJECT)
        else:
            self._add_alone(tokens, first, last)

    def _add_unpaired(self, token: Token) -> None:
        self.notes.append(f"{token.raw[:40]} has no counterpart: it is kept as text.")
        self._add_slot(token.raw, "tag")

    def _add_slot(self, raw: str, kind: str, shown: str = "") -> None:
        shown = shown or raw
        self.slots.append(Slot(len(self.text), len(self.text) + len(shown), raw, kind))
        self.text += shown


def _slots(text: str, offset: int, protection: Protection, written: Callable[[str], str]) -> list[Slot]:
    return [
        Slot(offset + span.start, offset + span.end, written(text[span.start : span.end]), span.kind)
        for span in protection.spans(text)
    ]


def partners(tokens: Sequence[Token]) -> dict[int, int]:
    """Return the index of the counterpart of each paired tag."""
    partner: dict[int, int] = {}
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if token.kind == "open":
            opened.append(index)
        elif token.kind == "close":
            names = [tokens[one].name for one in opened]
            if token.name in names:
                place = len(names) - 1 - names[::-1].index(token.name)
                partner[opened[place]], partner[index] = index, opened[place]
                del opened[place:]
    return partner


def html_escaped(text: str) -> str:
    """Return a text with `&`, `<` and `>` as entities."""
    return html.escape(text, quote=False)
