"""Spans that a translation must contain unchanged: placeholders, addresses, code, numbers with units."""

import functools
import re
from collections.abc import Sequence
from typing import NamedTuple

from heedful.core.errors import InputError

_UNITS = "km|cm|mm|m|kg|mg|g|ml|l|kHz|MHz|GHz|Hz|kW|W|kV|V|kB|KB|MB|GB|TB|KiB|MiB|GiB|ms|s|min|h|px|pt|dpi|°C|°F|%|€|£"
_BRANCHES = r"[^{}]"
for _ in range(5):  # arguments within branches of arguments
    _BRANCHES = rf"(?:[^{{}}]|\{{{_BRANCHES}*\}})"
_TYPES = "number|date|time|spellout|ordinal|duration|list"
_ADDRESS = r"(?:(?!\]\()[^\s<>\"'`])"
KINDS = {
    # An address in the text of a Markdown link ends with that text.
    "url": rf"(?:https?|ftp|file)://{_ADDRESS}*[^\s<>\"'`.,;:!?)\]}}]|\bwww\.[\w-]+(?:\.[\w-]+)+(?:/{_ADDRESS}*[\w/])?",
    "email": r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    "code": r"(?<!`)(`+)(?!`)[^\n]+?(?<!`)\1(?!`)|%<(?:[^%\n]|%(?![<>]))+%>",  # the last one as in messages of GCC
    "braces": r"\{\{[^{}\n]*\}\}|\{%[^{}\n]*%\}|[$%#]?\{[^{}\s]{0,60}\}"
    # arguments of ICU MessageFormat
    rf"|\{{\s*[\w.-]+\s*,\s*(?:(?:{_TYPES})\s*(?:,[^{{}}]*)?|(?:plural|selectordinal|select)\s*,{_BRANCHES}*)\}}"
    r"|\[X\d+X\]",  # Weblate's
    "escape": r"\\(?:[nrt](?![a-z])|u[0-9A-Fa-f]{4})",  # but no command of TeX
    "path": r"(?<![\w\\])[A-Za-z]:\\(?:[^\s\"'<>|?*]*[^\s\"'<>|?*.,;:!)])?",
    "printf": r"%L?\d{1,2}(?![^\W_]|\$|\.\d+[A-Za-z])|%(?:\d+\$)?(?:\(\w+\))?[-+#0]*(?:[1-9]\d*|\*)?(?:\.(?:\d+|\*))?"
    r"(?:hh|h|ll|l|L|z|j|t|q|I64|I32)?[A-Za-z@]|%%",
    "variable": r"\$[A-Za-z_]\w*",
    "entity": r"&(?:[A-Za-z][A-Za-z0-9]{1,30}|#\d{1,7}|#[xX][0-9a-fA-F]{1,6});",
    "number": rf"(?<![\w.,])\d+(?:[.,]\d+)*[ \u00a0\u202f]?(?:{_UNITS})(?!\w|\.\d|\(\w+\)\w)",
}
LENIENT = "number"  # the kind of which a translation may have more, since a model may write a number in figures
ALL = "all"  # names all kinds
SLOTS = tuple(f"\u27e6{number}\u27e7" for number in range(1, 10))  # tokens that stand for the spans of a sentence
_SLOT = re.compile("\u27e6[1-9]\u27e7")
_PERCENT = re.compile("\\d[ \u00a0\u202f]?\\Z")  # what makes "%" a percent sign, as in "100 %ige" and "100%-ige"
_SIZED = re.compile(r"%.*[\d.(*]")  # but not in "0%.3o"
_SENTENCE = "This is a sentence of several plain words."


class Span(NamedTuple):
    """A protected span: characters `start` to `end` of a text, and its kind: a key of `KINDS`, `own` or `slot`."""

    start: int
    end: int
    kind: str


class Protection:
    """Finds protected spans.

    Args:
        patterns: what the model was trained to carry as numbered tokens: names of `KINDS`, `all`, or regular
            expressions.

    Attributes:
        numbered_kinds: the kinds of those spans.
        fingerprint: a text that differs where spans may differ.

    Raises:
        InputError: a pattern does not compile, or matches an empty or an ordinary text.
    """

    def __init__(self, patterns: Sequence[str] = ()):
        own = [text for text in patterns if text not in KINDS and text != ALL]
        numbered = set(KINDS) if ALL in patterns else KINDS.keys() & set(patterns)
        self.numbered_kinds = numbered | ({"own"} if own else set())
        parts = [("own", checked(text)) for text in own] + list(KINDS.items())
        self.fingerprint = repr((sorted(self.numbered_kinds), parts))
        self._kinds = [kind for kind, _ in parts]
        # Each part is searched by itself, so that a pattern may have groups and flags of its own.
        self._parts = [re.compile(pattern) for _, pattern in parts]
        self._quick = None if own else re.compile(r"[{%$&`@\\\d\u27e6]|www\.|://")

    def spans(self, text: str) -> list[Span]:
        """Return the spans of a text in order; where some overlap, the first and longest."""
        if self._quick and not self._quick.search(text):
            return []
        matches = [Span(*match.span(), "slot") for match in _SLOT.finditer(text)]
        for kind, part in zip(self._kinds, self._parts, strict=True):
            matches += [Span(*match.span(), kind) for match in part.finditer(text) if match.group()]
        spans: list[Span] = []
        for span in sorted(matches, key=lambda span: (span.start, -span.end)):
            end = spans[-1].end if spans else 0
            if span.start < end:
                continue
            sized = _SIZED.match(text, span.start, span.end)
            if span.kind != "printf" or sized or not _PERCENT.search(text, end, span.start):
                spans.append(span)
        return spans


@functools.lru_cache(maxsize=16)
def protection_of(patterns: tuple[str, ...]) -> Protection:
    """Return the `Protection` for some patterns."""
    return Protection(patterns)


def checked(pattern: str) -> str:
    """Return a regular expression.

    Raises:
        InputError: it does not compile, matches too much, or is a misspelt kind.
    """
    if meant := {kind for kind in (*KINDS, ALL) if pattern.lower() in (kind, f"{kind}s") or f"{pattern}s" == kind}:
        raise InputError(f"data.protected: {pattern!r} is no kind of span: did you mean {meant.pop()!r}?")
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InputError(f"data.protected: {pattern!r} is no regular expression: {error}.") from error
    if compiled.search("") or sum(len(match.group()) for match in compiled.finditer(_SENTENCE)) > len(_SENTENCE) // 2:
        raise InputError(f"data.protected: {pattern!r} matches any text: nothing would be left to translate.")
    return pattern
