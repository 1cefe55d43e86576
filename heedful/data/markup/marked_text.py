"""A text without its markup, as a model reads it, and the markup that its translation gets back."""

import html
import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from heedful.config.protected import Protection
from heedful.data.markup.forms import MARKDOWN_SPANS, NUMBERED, READERS, partners
from heedful.data.markup.html_tokens import OPAQUE, Token, without_cdata
from heedful.data.markup.shields import Shields
from heedful.data.normalization import UNSPACED

_UNSPACED = re.compile(f"[{UNSPACED}]")
_DELIMITERS = re.compile(r"[<>*_~\[\]]|\{/")
ESCAPED = ("html", "xml")  # forms in which characters that mean markup are entities
# What would be markup in Markdown: delimiters, and the beginning of a list, a heading or a quotation.
_MARKDOWN = re.compile(r"[\\`*\[\]<~|$]|(?<!\w)_|_(?!\w)")
_MARKDOWN_BLOCK = re.compile(r"(?P<number>\d{1,9})[.)](?=\s|$)|#{1,6}(?=\s|$)|[+-](?=\s|$)|>|-{3,}\s*$")
SUB_SUPER = ("sub", "sup")
MAX_TAGS, MAX_DEPTH = 2000, 200  # of a text; one with more is kept as it is
KEPT = "it is kept as it is."
CODES_WITHIN_WORDS = ("bpt", "ept", "it")  # of XLIFF and TMX
STAND_IN, OBJECT = 24, "\ufffc"  # characters that stand for a hidden element; what stands for one without text
LONG_SPAN = 80  # characters of a protected span from which on a model reads its beginning only
# Elements of HTML, and of DocBook in software, at whose borders a word ends.
BLOCKS = frozenset(
    "address article aside blockquote body caption dd details div dl dt fieldset figcaption figure footer form h1 h2 "
    "h3 h4 h5 h6 header hr li main nav ol option p para pre section summary table tbody td tfoot th thead title tr "
    "ul".split()
)


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
    """A text without tags, its tags, its protected spans, and notes for the user.

    Args:
        form: of the markup that its translation gets, a key of `READERS`.
    """

    text: str
    tags: list[Tag]
    slots: list[Slot]
    notes: list[str]
    form: str = "tags"

    @property
    def escaped(self) -> bool:
        """Whether what a model writes gets entities."""
        return self.form in ESCAPED

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


def marked(
    text: str, form: str, protection: Protection, hidden: Iterable[str] = (), codes: Sequence[str] = ()
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
    escaped = form in ESCAPED
    if not escaped and (count := text.count("<")) > MAX_TAGS:  # reading what only looks like tags takes long
        return MarkedText(
            text, [], [Slot(0, len(text), text, "code")], [f"{text[:40]!r} has {count:,} <: {KEPT}"], form
        )
    text = without_cdata(text) if form == "xml" else text
    shields = Shields(text, () if escaped else _shielded(text, form, protection))
    tokens = READERS[form](shields.text)
    tags, deepest = _complexity(tokens)
    if tags > MAX_TAGS or deepest > MAX_DEPTH:
        note = f"{text[:40]!r} has {tags:,} tags, nested up to {deepest:,} deep: {KEPT}"
        return MarkedText(text, [], [Slot(0, len(text), text, "code")], [note], form)
    return _Reading(form, protection, hidden, codes, shields).read(tokens)


def _complexity(tokens: Sequence[Token]) -> tuple[int, int]:
    """Return the number of tags, and how many are open at most."""
    steps = {"open": 1, "close": -1}
    depths = itertools.accumulate(steps.get(token.kind, 0) for token in tokens)
    return sum(token.kind != "text" for token in tokens), max(depths, default=0)


def _shielded(text: str, form: str, protection: Protection) -> Iterable[tuple[int, int, str]]:
    """Yield the long spans of a text, and those with delimiters of markup: start, end and kind."""
    if form == "markdown":
        for match in MARKDOWN_SPANS.finditer(text):
            yield *match.span(), "code"
    for span in protection.spans(text):
        has_delimiter = _DELIMITERS.search(text, span.start, span.end)
        if span.end - span.start > LONG_SPAN or (has_delimiter and not NUMBERED.fullmatch(text, span.start, span.end)):
            yield span


class _Reading:
    """Joins the text of tokens, and notes where tags and protected spans are."""

    def __init__(
        self, form: str, protection: Protection, hidden: Iterable[str], codes: Sequence[str], shields: Shields
    ):
        self.form, self.protection, self.shields = form, protection, shields
        self.escaped = form in ESCAPED
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
                opening, closing = (self.shields.restored(one.raw) for one in (tokens[first], token))
                self.tags.append(Tag(begun[first], len(self.text), opening, closing, (first, index)))
                self._separate(tokens, index)
            index += 1
        return MarkedText(self.text, self.tags, self.slots, self.notes, self.form)

    def _is_hidden(self, token: Token) -> bool:
        opaque = self.escaped or self.form == "markdown"
        return token.name in self.hidden or (opaque and (token.name.lstrip("&") in OPAQUE or token.hidden))

    def _has_content(self, element: Token, token: Token) -> bool:
        """Return whether a token of an element is text to translate; sub- and superscripts without letters are not."""
        if token.kind != "text":
            return False
        return any(map(str.isalpha, token.raw)) if element.name in SUB_SUPER else bool(token.raw.strip())

    def _separate(self, tokens: Sequence[Token], index: int) -> None:
        """Add a space where a tag separates two words: that of a block, or an end tag directly before a start tag.

        In XML a name does not tell whether its element stands within a word, as those of XLIFF and TMX do.
        """
        following = tokens[index + 1] if index + 1 < len(tokens) else None
        if self.form == "xml" or not (following and self.text[-1:].strip()):
            return
        if tokens[index].name in BLOCKS:
            separated = following.kind == "text" and following.raw[:1].isalnum()
        else:
            beyond = next((one.raw for one in tokens[index + 1 :] if one.kind == "text"), "")
            adjoining = tokens[index].kind == "close" and following.kind == "open"
            separated = adjoining and tokens[index].name.isalnum() and beyond[:1].isalnum()
        if separated or (tokens[index].name in BLOCKS and following.kind == "open"):
            self.text += " "

    def _add_text(self, raw: str) -> None:
        for text, kind in self.shields.split(raw):
            if kind is None:
                self._add_plain(text)
            else:
                self._add_slot(text, kind, text[:STAND_IN] if len(text) > LONG_SPAN else text)

    def _add_plain(self, raw: str) -> None:
        # Spaces that do not break, and other wide ones, are characters of the text.
        text = re.sub(r"[ \t\r\n\f]+", " ", html.unescape(raw)) if self.escaped else raw
        alone = self.tags and self.tags[-1].start == self.tags[-1].end == len(self.text)
        if alone and (not self.text or self.text[-1].isspace()):
            text = text.lstrip(" ")  # a tag stood between two spaces, or at the beginning
        written = html_escaped if self.escaped else str
        self.slots += _slots(text, len(self.text), self.protection, written)
        self.text += text

    def _add_alone(self, tokens: Sequence[Token], index: int, last: int | None = None) -> None:
        last = index if last is None else last
        following = next((one.raw for one in tokens[last + 1 :] if one.kind == "text"), " ")
        spaces = not self.text or self.text[-1].isspace(), not following or following[0].isspace()
        if not any(spaces) and tokens[index].name not in CODES_WITHIN_WORDS and _is_word(self.text[-1], following[0]):
            self.text += " "  # else the words beside it would become one
        raw = self.shields.restored("".join(one.raw for one in tokens[index : last + 1]))
        self.tags.append(Tag(len(self.text), len(self.text), raw, "", (index, last), spaces))

    def _add_hidden(self, tokens: Sequence[Token], first: int, last: int) -> None:
        """Add an element whose content is not translated; a model reads the beginning of its text in its place."""
        raw = self.shields.restored("".join(one.raw for one in tokens[first : last + 1]))
        shown = "".join(html.unescape(one.raw) for one in tokens[first:last] if one.kind == "text").strip()[:STAND_IN]
        if shown and tokens[first].name not in self.codes:
            self._add_slot(raw, "code", shown)
        elif self.protection.numbered_kinds:
            self._add_slot(raw, "code", OBJECT)
        else:
            self._add_alone(tokens, first, last)

    def _add_unpaired(self, token: Token) -> None:
        raw = self.shields.restored(token.raw)
        shown = html.unescape(raw) if self.escaped else raw
        self.notes.append(f"{shown[:40]} has no counterpart: it is kept as text.")
        self._add_slot(raw, "tag", shown)

    def _add_slot(self, raw: str, kind: str, shown: str = "") -> None:
        shown = shown or raw
        self.slots.append(Slot(len(self.text), len(self.text) + len(shown), raw, kind))
        self.text += shown


def _is_word(before: str, after: str) -> bool:
    """Return whether two characters would be parts of one word, in a script with spaces between words."""
    return before.isalnum() and after.isalnum() and not (_UNSPACED.match(before) or _UNSPACED.match(after))


def _slots(text: str, offset: int, protection: Protection, written: Callable[[str], str]) -> list[Slot]:
    return [
        Slot(offset + span.start, offset + span.end, written(text[span.start : span.end]), span.kind)
        for span in protection.spans(text)
    ]


def markdown_escaped(text: str, source: str) -> str:
    """Return a text with backslashes before what would be markup; such characters that its source has stay.

    >>> print(markdown_escaped("the *first* [x] of snake_case_", "[x]"))
    the \\*first\\* [x] of snake_case\\_
    """
    kept = {match[0] for match in _MARKDOWN.finditer(source)}
    return _MARKDOWN.sub(lambda match: match[0] if match[0] in kept else f"\\{match[0]}", text)


def markdown_paragraph(text: str, source: str) -> str:
    """Return a line of Markdown that begins no list, heading or quotation, unless its source does."""
    match = _MARKDOWN_BLOCK.match(text)
    if not match or _MARKDOWN_BLOCK.match(source):
        return text
    number = match["number"] or ""
    return f"{number}\\{text[len(number) :]}"


def html_escaped(text: str) -> str:
    """Return a text with `&`, `<` and `>` as entities."""
    return html.escape(text, quote=False)
