"""Subtitles in SubRip and WebVTT: the text of each cue is translated, and wrapped to as many lines as before."""

import re
from collections.abc import Sequence

from heedful.config.protected import Protection
from heedful.core.errors import InputError
from heedful.data.document_formats import decoded
from heedful.data.document_formats.document import Document, Replacement, Replacements, unwrapped, wrapped
from heedful.data.markup.marked_text import marked

_DASHED = re.compile(r"^[ \t]*[-\u2013\u2014]", re.MULTILINE)  # a line that begins what another speaker says
_LEAD = re.compile(r"[ \t]*(?:[-\u2013\u2014][ \t]*)?")
_CUE = re.compile(r"^(?:\d+:)?\d+:\d\d[.,]\d+\s*-->.*$", re.MULTILINE)
_NEXT = r"(?!(?:\d+[ \t]*\r?\n)?(?:\d+:)?\d+:\d\d[.,]\d+\s*-->)"  # a cue without a blank line before it
_TEXT = re.compile(rf"(?:\r?\n)((?:{_NEXT}[^\r\n]+(?:\r?\n|\Z))+)")


def read(content: bytes, name: str, protection: Protection) -> Document:
    """Read a file of subtitles in UTF-8; raise `InputError` if it has no cue."""
    text = decoded(content, name)
    replacements = Replacements(text)
    for cue in _CUE.finditer(text):
        match = _TEXT.match(text, cue.end())
        if match:
            for start, end in _speeches(match[1].rstrip("\r\n"), match.start(1)):
                sentence = marked(unwrapped(text[start:end].strip()), "cue", protection)
                if not sentence.wordless:
                    replacements.ranges.append(Replacement(start, end, sentence))
    if not _CUE.search(text):
        raise InputError(f"{name} has no cue, such as 00:00:01,000 --> 00:00:02,000.")

    def written(results: Sequence[str]) -> bytes:
        wrapped_results = []
        for one, result in zip(replacements.ranges, results, strict=True):
            raw = text[one.start : one.end]
            line_end = "\r\n" if "\r\n" in raw else "\n"
            wrapped_results.append(line_end.join(wrapped(result, raw.count("\n") + 1)))
        return replacements.written(wrapped_results).encode()

    notes = [f"{name}: {note}" for one in replacements.texts for note in one.notes]
    return Document(replacements.texts, written, notes)


def _speeches(raw, offset):
    """Yield the start and end of what each speaker says: a new one begins after a dash at the start of a line."""
    begins = [0, *(match.start() for match in _DASHED.finditer(raw) if match.start())]
    for begin, end in zip(begins, [*begins[1:], len(raw)], strict=True):
        start = _LEAD.match(raw, begin).end()  # type: ignore[union-attr]  # it matches an empty text too
        yield offset + start, offset + max(start, len(raw[:end].rstrip()))
