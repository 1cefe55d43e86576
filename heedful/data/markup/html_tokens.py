"""HTML and XML cut into tags and text; the tokens joined are the input, character by character."""

import html
import itertools
import re
from html.parser import HTMLParser
from typing import NamedTuple

VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
INLINE = frozenset(
    "a abbr acronym b bdi bdo big br cite code data del dfn em font i img input ins kbd label mark q rp rt ruby s samp "
    "small span strike strong sub sup time tt u var wbr math button output".split()
)
# Elements whose content is no text.
OPAQUE = frozenset("code kbd math pre samp script style svg template textarea tt var".split())
UNTRANSLATED = ("translate", "no")  # the attribute of what is not translated, in HTML and XLIFF
CDATA = "<![CDATA["


class Token(NamedTuple):
    """A piece of HTML.

    Args:
        kind: `text`, `open`, `close`, `alone` (a void or self-closing element) or `other` (comments, declarations).
        name: of the element, in lower case.
        raw: its characters.
        hidden: whether it is the opening tag of an element that is marked as not to be translated.
    """

    kind: str
    name: str
    raw: str
    hidden: bool = False


def without_cdata(text: str) -> str:
    """Return XML in which the content of CDATA sections is escaped text."""
    parts, position = [], 0
    while (start := text.find(CDATA, position)) >= 0 and (end := text.find("]]>", start)) >= 0:
        parts += [text[position:start], html.escape(text[start + len(CDATA) : end], quote=False)]
        position = end + len("]]>")
    return "".join([*parts, text[position:]])


def with_characters(text: str) -> str:
    """Return XML with characters for references by number and quotes, but where a character would be markup."""
    decoded = ((match.group(), html.unescape(match.group())) for match in re.finditer(r"&(?:#\w+|apos|quot);", text))
    for reference, character in dict(decoded).items():
        text = text if character in "<>&" else text.replace(reference, character)
    return text


class _Reader(HTMLParser):
    """Notes where each event begins; what lies between two events belongs to the first, or is text."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=False)
        lines = text.split("\n")
        self._starts = list(itertools.accumulate((len(line) + 1 for line in lines), initial=0))
        self.events: list[tuple[int, int, str, str, bool]] = []  # start, length or -1, kind, name, hidden
        self.feed(text)
        self.close()

    def parse_html_declaration(self, i: int) -> int:
        """Read `<!...>`; a section other than CDATA is a comment up to the next `>`, as in browsers."""
        if self.rawdata.startswith(CDATA, i):
            end = self.rawdata.find("]]>", i)
            self._note("other", "", len(self.rawdata[i:]) if end < 0 else end + 3 - i)
            return len(self.rawdata) if end < 0 else end + 3
        if self.rawdata.startswith("<![", i):
            return self.parse_bogus_comment(i)
        return super().parse_html_declaration(i)

    def _note(self, kind: str, name: str, length: int = -1, hidden: bool = False) -> None:
        line, column = self.getpos()
        self.events.append((self._starts[line - 1] + column, length, kind, name, hidden))

    def handle_starttag(self, tag: str, attrs: list) -> None:
        values = {name: (value or "").lower() for name, value in attrs}
        hidden = "notranslate" in values.get("class", "").split() or UNTRANSLATED in values.items()
        hidden |= values.get("mtype") == "protected"  # in XLIFF
        self._note("alone" if tag in VOID else "open", tag, len(self.get_starttag_text() or ""), hidden)

    def handle_startendtag(self, tag: str, attrs: list) -> None:
        self._note("alone", tag, len(self.get_starttag_text() or ""))

    def handle_endtag(self, tag: str) -> None:
        self._note("close", tag)

    def handle_data(self, data: str) -> None:
        self._note("text", "")

    def handle_entityref(self, name: str) -> None:
        self._note("text", "")

    def handle_charref(self, name: str) -> None:
        self._note("text", "")

    def handle_comment(self, data: str) -> None:
        self._note("other", "")

    def handle_decl(self, decl: str) -> None:
        self._note("other", "")

    def handle_pi(self, data: str) -> None:
        self._note("other", "")

    def unknown_decl(self, data: str) -> None:
        self._note("other", "")


def html_tokens(text: str) -> list[Token]:
    """Return the tokens of an HTML or XML text."""
    last = text.rfind(">") + 1  # no tag ends after it, but the parser would look for the end of each
    events = _Reader(text[:last]).events if "<" in text[:last] else []
    if not events:
        return [Token("text", "", text)] if text else []
    tokens: list[Token] = []
    pending: list[str] = []  # pieces of a text

    def add(kind: str, name: str, raw: str, hidden: bool = False) -> None:
        if kind == "text":
            pending.append(raw)
        elif raw:
            end_text()
            tokens.append(Token(kind, name, raw, hidden))

    def end_text() -> None:
        if joined := "".join(pending):
            tokens.append(Token("text", "", joined))
        pending.clear()

    add("text", "", text[: events[0][0]])
    ends = [start for start, *_ in events[1:]] + [len(text)]
    for (start, length, kind, name, hidden), end in zip(events, ends, strict=True):
        stop = end
        if length >= 0:
            stop = min(end, start + length)
        elif kind in ("close", "other"):
            closed = text.find("-->" if text.startswith("<!--", start) else ">", start, end)
            stop = end if closed < 0 else text.index(">", closed) + 1
        add(kind, name, text[start:stop], hidden)
        add("text", "", text[stop:end])
    end_text()
    return tokens
