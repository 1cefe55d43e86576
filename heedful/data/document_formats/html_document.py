"""HTML: text between tags of blocks is translated; tags within a block go where the words go."""

import codecs
import itertools
import re
from collections.abc import Sequence

from heedful.config.protected import Protection
from heedful.core.errors import InputError
from heedful.data.document_formats import decoded
from heedful.data.document_formats.document import Document, Replacements
from heedful.data.markup.forms import partners
from heedful.data.markup.html_tokens import INLINE, OPAQUE, Token, html_tokens
from heedful.data.markup.marked_text import MarkedText, marked

HEAD = 4096  # bytes in which an encoding is declared; browsers read 1,024 bytes
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_XML = re.compile(rb"""\s*<\?xml\b[^>]*\bencoding\s*=\s*["']([\w.-]+)""")
_META = re.compile(rb"<meta\s([^>]*)>", re.IGNORECASE)
_ATTRIBUTE = re.compile(rb"""([\w-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
_CHARSET = re.compile(rb"charset\s*=\s*([\w.-]+)", re.IGNORECASE)


def read(content: bytes, name: str, protection: Protection) -> Document:
    """Read an HTML file in the encoding that it declares; raise `InputError` if it is in another one."""
    encoding = encoding_of(content, name)
    text = decoded(content, name, encoding)
    replacements = html_replacements(text, protection)

    def written(results: Sequence[str]) -> bytes:
        return replacements.written(results).encode(encoding, "xmlcharrefreplace")

    notes = [f"{name}: {note}" for one in replacements.texts for note in one.notes]
    return Document(replacements.texts, written, notes)


def html_replacements(
    text: str, protection: Protection, hidden: Sequence[str] = (), inline: Sequence[str] | None = None
) -> Replacements:
    """Return the translated ranges of an HTML or XML text.

    Args:
        text: the text.
        protection: finds protected spans.
        hidden: names of more elements whose content is not translated.
        inline: names of the elements that stand within sentences; None: those of HTML. A tag of another element ends a
            text.
    """
    tokens = html_tokens(text)
    partner = partners(tokens)
    within = INLINE if inline is None else frozenset(inline)
    opaque = {*OPAQUE, *hidden} if inline is None else set(hidden)
    replacements = Replacements(text)

    def read(raw: str) -> MarkedText:
        return marked(raw, "html" if inline is None else "xml", protection, hidden)

    starts = [0]
    for token in tokens:
        starts.append(starts[-1] + len(token.raw))
    for first, last in _runs(tokens, partner, within, opaque):
        replacements.add(starts[first], starts[last], read)
    return replacements


def _runs(tokens: list[Token], partner: dict[int, int], within: frozenset[str], opaque: set[str]):
    """Yield the ranges of tokens that form one text each."""

    def is_inline(token: Token) -> bool:
        return token.kind == "text" or (token.name in within and token.name != "br") or (
            token.kind == "other" and token.raw.startswith("<!--"))  # fmt: skip

    runs, first, index = [], 0, 0
    while index < len(tokens):
        token = tokens[index]
        hidden = token.kind == "open" and index in partner and (token.name in opaque or token.hidden)
        if is_inline(token) and not (hidden and token.name not in within):
            index = partner[index] + 1 if hidden else index + 1
            continue
        runs.append((first, index))
        index = partner[index] + 1 if hidden else index + 1
        first = index
    runs.append((first, len(tokens)))
    counts = list(itertools.accumulate(map(_has_text, tokens), initial=0))
    for start, end in runs:
        yield from _closed(tokens, partner, start, end, counts)


def _closed(tokens, partner, start, end, counts):
    """Yield the parts of a run between tags whose counterparts are outside of it, without tags at both ends."""
    first, hidden_until = start, start
    for index in range(start, end):
        if tokens[index].kind == "open" and (tokens[index].name in OPAQUE or tokens[index].hidden):
            hidden_until = max(hidden_until, partner.get(index, index))
        if index < hidden_until:
            continue  # a tag in code has no counterpart
        if tokens[index].kind in ("open", "close") and not start <= partner.get(index, -1) < end:
            yield from _trimmed(tokens, partner, first, index, counts)
            first = index + 1
    yield from _trimmed(tokens, partner, first, end, counts)


def _trimmed(tokens, partner, start, end, counts):
    """Yield a part without the tags around all of it, and the comments at its ends.

    `counts`: of the texts before each token.
    """
    while start < end:
        narrowed = _narrowed(tokens, partner, start, end, counts)
        if narrowed == (start, end):
            yield start, end
            return
        start, end = narrowed


def _narrowed(tokens, partner, start, end, counts):
    """Return a part without one token, or one element without text, at its ends; or as it is."""
    first, last = tokens[start], tokens[end - 1]
    if not _has_text(first) and first.kind != "open":
        return start + 1, end
    if not _has_text(last) and last.kind != "close":
        return start, end - 1
    if first.kind == "open" and counts[start] == counts[partner[start]]:
        return partner[start] + 1, end
    if last.kind == "close" and counts[partner[end - 1]] == counts[end]:
        return start, partner[end - 1]
    if first.kind == "open" and partner[start] == end - 1 and not (first.hidden or first.name in OPAQUE):
        return start + 1, end - 1
    return start, end


def _has_text(token):
    return token.kind == "text" and bool(token.raw.strip())


def encoding_of(content: bytes, name: str) -> str:
    """Return the encoding of a file: UTF-8 after a byte order mark, otherwise what it declares, by default UTF-8."""
    declared = b"" if content.startswith(codecs.BOM_UTF8) else _declared(_COMMENT.sub(b"", content[:HEAD]))
    label = declared.decode("ascii", "replace").strip().lower() or "utf-8"
    try:
        "".encode(label)  # some codecs of Python are no encodings of text
        encoding = codecs.lookup(label).name
    except (LookupError, UnicodeError) as error:
        raise InputError(f"{name} declares the encoding {label}, which is not known.") from error
    # As in browsers, Latin-1 means its superset of Windows; and a file whose declaration can be read is not UTF-16.
    return {"iso8859-1": "cp1252", "ascii": "cp1252"}.get(encoding, "utf-8" if "utf-16" in encoding else encoding)


def _declared(head: bytes) -> bytes:
    """Return the encoding that the beginning of a file declares, or nothing."""
    if match := _XML.match(head):
        return match[1]
    for tag in _META.finditer(head):
        values = {name.lower(): b"".join(value) for name, *value in _ATTRIBUTE.findall(tag[1])}
        if b"charset" in values:
            return values[b"charset"]
        if values.get(b"http-equiv", b"").lower() == b"content-type":
            match = _CHARSET.search(values.get(b"content", b""))
            return match[1] if match else b""
    return b""
