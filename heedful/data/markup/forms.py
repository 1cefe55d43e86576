"""Tokenizers for each form of markup: tags and text."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from heedful.data.markup.html_tokens import VOID, Token, html_tokens

NUMBERED = re.compile(r"\{(/?)(\w+)\}")
# Names of tags in HTML begin with a letter: those such as `<0>` get a prefix, which no text has, while they are read.
_DIGIT_TAG, _PREFIX = re.compile(r"<(/?)(?=\d+\s*/?>)"), "x\ue000"
# Delimiters of Markdown; the end of a link includes its address.
_MARKDOWN = re.compile(
    r"\\.|\*\*\*|___|\*\*|__|~~|\*|_|!?\[|"
    r"\]\(\s*(?:<[^<>\n]*>|(?!<)[^()\s]*(?:\((?:[^()\s]|\([^()\s]*\))*\)[^()\s]*)*)"
    r"(?:\s+(?:\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\((?:\\.|[^()\\])*\)))?\s*\)|\]\[[^\]\[]*\]"
)
# Spans that only Markdown has: addresses in angle brackets, references to footnotes, checkboxes of task lists.
MARKDOWN_SPANS = re.compile(
    r"<(?:[A-Za-z][\w+.-]{1,31}:[^\s<>]*|[\w.+-]+@[\w-]+(?:\.[\w-]+)+)>|\[\^[^\]\s]+\]:?|\A\[[ xX]\](?=\s)"
)
_ESCAPED_TAG = re.compile(
    r"&lt;(?P<closing>/?)(?P<name>[A-Za-z][\w:-]*)"
    r"(?:\s+[\w:-]+=(?:&(?P<quote>quot|apos|#39);(?:(?!&(?P=quote);)[^<]){0,500}&(?P=quote);"
    r"|\"[^<\"]{0,500}\"|'[^<']{0,500}'|[^\s<>&\"']+))*\s*(?P<alone>/?)(?:&gt;|>)"
)
_CUE_TAG = re.compile(r"<(/?)([A-Za-z]+)(?:[.\s][^<>]*|/)?>|<\d[\d:.]*>|\{\\[^{}]*\}")
CUE_NAMES = ("v", "c", "lang")


def tags_of(text: str) -> list[Token]:
    """Return the tokens of a text with tags of XML and HTML, and numbered ones: `<0>link</0>` and `{0}link{/0}`."""
    tokens: list[Token] = []
    closed = {match[2] for match in NUMBERED.finditer(text) if match[1]}
    for token in html_tokens(text if _PREFIX in text else _DIGIT_TAG.sub(rf"<\1{_PREFIX}", text)):
        if _PREFIX not in text:
            token = token._replace(raw=token.raw.replace(_PREFIX, ""))
        if token.kind != "text" or not closed:
            tokens.append(token)
            continue
        end = 0
        for match in NUMBERED.finditer(token.raw):
            if match[2] in closed:
                tokens.append(Token("text", "", token.raw[end : match.start()]))
                tokens.append(Token("close" if match[1] else "open", "{" + match[2], match.group()))
                end = match.end()
        tokens.append(Token("text", "", token.raw[end:]))
    return [token for token in tokens if token.raw]


def xml_tokens(text: str) -> list[Token]:
    """Return the tokens of XML; tags of HTML that it has as text, as in many XLIFF files, are tags too."""
    tokens: list[Token] = []
    for token in html_tokens(text):
        end = 0
        for match in _ESCAPED_TAG.finditer(token.raw) if token.kind == "text" else ():
            name = match["name"].lower()
            alone = match["alone"] or (name in VOID and not match["closing"])
            kind = "alone" if alone else "close" if match["closing"] else "open"
            # An element of XML has another name, so that neither ends the other.
            tokens += [Token("text", "", token.raw[end : match.start()]), Token(kind, f"&{name}", match.group())]
            end = match.end()
        tokens.append(token._replace(raw=token.raw[end:]))
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
    for start, mark in _delimiters(text, opened):
        stop = start + len(mark)
        before, after = text[start - 1 : start] if start else preceding, text[stop : stop + 1] or following
        name = "[" if mark[0] in "![]" else mark
        if name[0] == "_" and before.isalnum() and after.isalnum():  # as in snake_case and A__B
            continue
        index = next((i for i in range(len(opened) - 1, -1, -1) if opened[i][0] == name), None)
        closes = index is not None and (mark[0] == "]" or (name != "[" and bool(before.strip())))
        opens = mark in ("[", "![") or (name != "[" and bool(after.strip()))
        if not closes and not opens:
            continue
        pieces.append(Token("text", "", text[end:start]))
        if closes and index is not None:
            _, open_piece = opened[index]
            del opened[index:]
            pieces[open_piece] = Token("open", name, pieces[open_piece].raw)
            pieces.append(Token("close", name, mark))
        else:
            opened.append((name, len(pieces)))
            pieces.append(Token("text", "", mark))
        end = stop
    pieces.append(Token("text", "", text[end:]))


def cue_tokens(text: str) -> list[Token]:
    """Return the tokens of a cue of subtitles: tags with classes, times, and positions such as `{\\an8}`.

    The tag of a voice, a class or a language may have no end tag.
    """
    tokens: list[Token] = []
    end = 0
    for match in _CUE_TAG.finditer(text):
        name = (match[2] or "").lower()
        kind = "alone" if not name or name in VOID else "close" if match[1] else "open"
        tokens += [Token("text", "", text[end : match.start()]), Token(kind, name, match.group())]
        end = match.end()
    tokens = [token for token in (*tokens, Token("text", "", text[end:])) if token.raw]
    paired = partners(tokens)
    return [
        token._replace(kind="alone") if token.kind == "open" and index not in paired and token.name in CUE_NAMES
        else token for index, token in enumerate(tokens)
    ]  # fmt: skip


def _delimiters(text: str, opened: Sequence[tuple[str, int]]) -> Iterator[tuple[int, str]]:
    """Yield the start and the text of each delimiter; three marks are one delimiter only if three close them too."""
    for match in _MARKDOWN.finditer(text):
        start, mark = match.start(), match.group()
        if mark[0] == "\\":
            continue
        if mark not in ("***", "___"):
            yield start, mark
            continue
        size = _first_size(mark, [name for name, _ in opened], text, match.end())
        yield start, mark[:size]
        if size < len(mark):
            yield start + size, mark[size:]


def _first_size(mark: str, opened: Sequence[str], text: str, end: int) -> int:
    """Return the size of the first delimiter in three marks that end at `end`.

    Args:
        mark: the three marks.
        opened: the delimiters that are open.
        text, end: the text, and where the marks end.
    """
    letter = mark[0]
    if opened and opened[-1] in (letter, 2 * letter):
        return len(opened[-1])
    if mark in opened or text.find(mark, end) >= 0:
        return len(mark)
    closing = re.compile(f"{re.escape(letter)}+").search(text, end)  # they close what is opened last
    return 1 if closing and len(closing.group()) > 1 else 2


READERS: dict[str, Callable[[str], list[Token]]] = {
    "cue": cue_tokens, "tags": tags_of, "html": html_tokens, "xml": xml_tokens, "markdown": markdown_tokens,
}  # fmt: skip


def partners(tokens: Sequence[Token]) -> dict[int, int]:
    """Return the index of the counterpart of each paired tag; in linear time, since many may never be closed."""
    partner: dict[int, int] = {}
    opened: list[int] = []  # indices of the tags that are open
    depths: dict[str, list[int]] = defaultdict(list)  # by name, their places in `opened`
    for index, token in enumerate(tokens):
        if token.kind == "open":
            depths[token.name].append(len(opened))
            opened.append(index)
        elif token.kind == "close" and depths[token.name]:
            depth = depths[token.name][-1]
            partner[opened[depth]], partner[index] = index, opened[depth]
            while len(opened) > depth:
                depths[tokens[opened.pop()].name].pop()
    return partner
