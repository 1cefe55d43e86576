"""A text without its markup, as a model reads it, and the markup that its translation gets back."""

import html
import itertools
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from heedful.config.protected import Protection
from heedful.data.markup.html_tokens import INLINE, OPAQUE, Token, html_tokens

_NUMBERED = re.compile(r"\{(/?)(\w+)\}")
# Delimiters of Markdown, links last: their ends carry the address.
_MARKDOWN = re.compile(
    r"\\.|\*\*\*|___|\*\*|__|~~|\*|_|!?\[|"
    r"\]\(\s*[^()\s]*(?:\([^()\s]*\))?[^()\s]*(?:\s+\"[^\"]*\")?\s*\)|\]\[[^\]\[]*\]"
)
# What Markdown knows beside spans that any text may have: addresses in angle brackets, footnotes, boxes of tasks.
_MARKDOWN_SPANS = re.compile(
    r"<(?:[A-Za-z][\w+.-]{1,31}:[^\s<>]*|[\w.+-]+@[\w-]+(?:\.[\w-]+)+)>|\[\^[^\]\s]+\]:?|\A\[[ xX]\](?=\s)"
)
_DELIMITERS = re.compile(r"[<>*_~\[\]]|\{/")
_SHIELDS = range(0xF0000, 0xFFFFE)  # private characters, one for each span that holds delimiters
_SHIELDED = re.compile("([\U000f0000-\U000ffffd])")
MAX_TAGS, MAX_DEPTH = 2000, 200  # of a text; one with more is kept as it is
NAMED_POWERS = ("sub", "sup")
_CUE_TAG = re.compile(r"<(/?)([A-Za-z]+)(?:[.\s][^<>]*)?>|<\d[\d:.]*>|\{\\[^{}]*\}")
CUE_NAMES = ("v", "c", "lang")

STAND_IN, OBJECT = 24, "\ufffc"  # characters that stand for a hidden element; what stands for one without text
LONG_SPAN = 80  # characters of a protected span from which on a model reads its beginning only


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
        """Whether nothing but markup, numbers and punctuation is in the text."""
        kept, end = "", 0
        for slot in self.slots:
            kept, end = kept + self.text[end : slot.start], slot.end
        return not any(map(str.isalpha, kept + self.text[end:]))


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
    pieces: list[Token] = []
    opened: list[tuple[str, int]] = []  # delimiter and index of its piece
    tokens = html_tokens(text)
    for index, token in enumerate(tokens):
        if token.kind != "text":
            pieces.append(token)
        else:
            following = tokens[index + 1].raw[0] if index + 1 < len(tokens) else ""
            _add_markdown(token.raw, following, pieces, opened)
    return [piece for piece in pieces if piece.raw]


def _add_markdown(text: str, following: str, pieces: list[Token], opened: list[tuple[str, int]]) -> None:
    """Add the tokens of a text between tags of HTML to `pieces`; `following`: the character after it."""
    preceding = pieces[-1].raw[-1:] if pieces else ""
    end = 0
    for match in _MARKDOWN.finditer(text):
        start, stop = match.span()
        if match.group()[0] == "\\":
            continue
        mark = match.group()
        before, after = text[start - 1 : start] if start else preceding, text[stop : stop + 1] or following
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
    pieces.append(Token("text", "", text[end:]))


def cue_tokens(text: str) -> list[Token]:
    """Return the tokens of a cue of subtitles: tags with classes, times, and positions such as `{\\an8}`.

    The tag of a voice, a class or a language may have no end.
    """
    tokens: list[Token] = []
    end = 0
    for match in _CUE_TAG.finditer(text):
        name = (match[2] or "").lower()
        kind = "alone" if not name else "close" if match[1] else "open"
        tokens += [Token("text", "", text[end : match.start()]), Token(kind, name, match.group())]
        end = match.end()
    tokens = [token for token in (*tokens, Token("text", "", text[end:])) if token.raw]
    paired = partners(tokens)
    return [
        token._replace(kind="alone") if token.kind == "open" and index not in paired and token.name in CUE_NAMES
        else token for index, token in enumerate(tokens)
    ]  # fmt: skip


READERS: dict[str, Callable[[str], list[Token]]] = {
    "cue": cue_tokens, "tags": tags_of, "html": html_tokens, "xml": html_tokens, "markdown": markdown_tokens,
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
        slots = _slots(text, 0, protection, str)
        if all(slot.end - slot.start <= LONG_SPAN for slot in slots):
            return MarkedText(text, [], slots, [])
    shielded, spans = (text, []) if form in ("html", "xml") else _shielded(text, form, protection)
    tokens = READERS[form](shielded)
    tags, deepest = _complexity(tokens)
    if tags > MAX_TAGS or deepest > MAX_DEPTH:
        note = f"{text[:40]!r} has {tags:,} tags, nested up to {deepest:,} deep: it is kept as it is."
        return MarkedText(text, [], [Slot(0, len(text), text, "code")], [note])
    return _Reading(form in ("html", "xml"), protection, hidden, codes, spans).read(tokens)


def _complexity(tokens: Sequence[Token]) -> tuple[int, int]:
    """Return the number of tags, and how many are open at most."""
    steps = {"open": 1, "close": -1}
    depths = itertools.accumulate(steps.get(token.kind, 0) for token in tokens)
    return sum(token.kind != "text" for token in tokens), max(depths, default=0)


def _shielded(text: str, form: str, protection: Protection) -> tuple[str, list[tuple[str, str]]]:
    """Return a text with private characters for long spans and spans with delimiters; and their texts and kinds."""
    found = [(*match.span(), "code") for match in _MARKDOWN_SPANS.finditer(text)] if form == "markdown" else []
    found += [
        span for span in protection.spans(text)
        if span.end - span.start > LONG_SPAN
        or (_DELIMITERS.search(text, span.start, span.end) and not _NUMBERED.fullmatch(text, span.start, span.end))
    ]  # fmt: skip
    spans: list[tuple[str, str]] = []
    parts, end = [], 0
    for start, stop, kind in sorted(found, key=lambda one: (one[0], -one[1])):
        if start < end or len(spans) == len(_SHIELDS):
            continue
        parts += [text[end:start], chr(_SHIELDS[len(spans)])]
        spans.append((text[start:stop], kind))
        end = stop
    return "".join([*parts, text[end:]]), spans


class _Reading:
    """Joins the text of tokens, and notes where tags and protected spans are."""

    def __init__(
        self, escaped: bool, protection: Protection, hidden: Sequence[str], codes: Sequence[str],
        spans: Sequence[tuple[str, str]],
    ):  # fmt: skip
        self.escaped, self.protection, self.spans = escaped, protection, spans
        self.shields = {_SHIELDS[number]: text for number, (text, _) in enumerate(spans)}
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
                elif not any(self._has_content(token, one) for one in tokens[index:last]):
                    self._add_alone(tokens, index, last)
                    index = last
                else:
                    self._separate(tokens, index)
                    begun[index] = len(self.text)
            else:
                first = partner[index]
                opening, closing = (one.raw.translate(self.shields) for one in (tokens[first], token))
                self.tags.append(Tag(begun[first], len(self.text), opening, closing, (first, index)))
                self._separate(tokens, index)
            index += 1
        return MarkedText(self.text, self.tags, self.slots, self.notes)

    def _is_hidden(self, token: Token) -> bool:
        return token.name in self.hidden or (self.escaped and (token.name in OPAQUE or token.hidden))

    def _has_content(self, element: Token, token: Token) -> bool:
        """Return whether a token within an element has something to translate: a power or a footnote's mark is none."""
        if token.kind != "text":
            return False
        return any(map(str.isalpha, token.raw)) if element.name in NAMED_POWERS else bool(token.raw.strip())

    def _separate(self, tokens: Sequence[Token], index: int) -> None:
        """Add a space at a tag before a letter, if it ends a word: that of a block, or one beside another tag."""
        following = tokens[index + 1] if index + 1 < len(tokens) else None
        if not (following and self.text[-1:].strip()):
            return
        name = tokens[index].name
        if following.kind == "text" and name not in INLINE and name.isalnum() and following.raw[:1].isalnum():
            self.text += " "
        elif tokens[index].kind == "close" and following.kind == "open" and name.isalnum():
            beyond = next((one.raw for one in tokens[index + 1 :] if one.kind == "text"), "")
            self.text += " " if beyond[:1].isalnum() else ""

    def _add_text(self, raw: str) -> None:
        for number, part in enumerate(_SHIELDED.split(raw) if self.spans else [raw]):
            if number % 2 and ord(part) in self.shields:
                span, kind = self.spans[ord(part) - _SHIELDS[0]]
                self._add_slot(span, kind, span[:STAND_IN] if len(span) > LONG_SPAN else span)
            elif part:
                self._add_plain(part)

    def _add_plain(self, raw: str) -> None:
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
        raw = "".join(one.raw for one in tokens[index : last + 1]).translate(self.shields)
        self.tags.append(Tag(len(self.text), len(self.text), raw, "", (index, last), spaces))

    def _add_hidden(self, tokens: Sequence[Token], first: int, last: int) -> None:
        """Add an element whose content is not translated; a model reads the beginning of its text in its place."""
        raw = "".join(one.raw for one in tokens[first : last + 1]).translate(self.shields)
        shown = "".join(html.unescape(one.raw) for one in tokens[first:last] if one.kind == "text").strip()[:STAND_IN]
        if shown and tokens[first].name not in self.codes:
            self._add_slot(raw, "code", shown)
        elif self.protection.numbered_kinds:
            self._add_slot(raw, "code", OBJECT)
        else:
            self._add_alone(tokens, first, last)

    def _add_unpaired(self, token: Token) -> None:
        raw = token.raw.translate(self.shields)
        self.notes.append(f"{raw[:40]} has no counterpart: it is kept as text.")
        self._add_slot(raw, "tag")

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
