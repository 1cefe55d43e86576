"""PO files of gettext: entries without a translation are translated; fuzzy and translated ones stay as they are."""

import gettext
import re
from collections.abc import Callable, Sequence
from typing import Any

from heedful.config.protected import Protection
from heedful.core.errors import InputError
from heedful.data.document_formats.document import Document, TextCollector, ends_of
from heedful.data.markup.marked_text import marked
from heedful.data.markup.messages import message_pieces

_ENCODING = re.compile(rb'("Content-Type:[^"]*charset=)([\w.:-]+)')
PLACEHOLDER = b"CHARSET"  # stands for the encoding in a file that xgettext has written


def read(content: bytes, name: str, protection: Protection) -> Document:
    """Read a PO file in the encoding that its header names; with letters that this lacks, it is written in UTF-8.

    Raises:
        InputError: it is not a PO file.
    """
    entries, text, encoding = parsed(content, name)
    declared = match[2] if (match := _ENCODING.search(content)) else b""
    lines = re.findall(r"[^\n]*\n|[^\n]+\Z", text)
    texts = TextCollector(lambda line: marked(line, "tags", protection))
    # (first and last line, prefix, parts of the message: text, or what makes it from the translations)
    ranges: list[tuple[int, int, str, list[str | Callable[[Sequence[str]], str]]]] = []

    def add(start: int, message: str) -> None:
        end = start + 1
        while end < len(lines) and lines[end].lstrip().startswith('"'):
            end += 1
        if any(line.partition('"')[2].strip() != '"' for line in lines[start:end]):
            return  # a plural form that has a translation, or text after the closing quote
        parts: list[str | Callable[[Sequence[str]], str]] = []
        for line in [message] if message_pieces(message) else re.split(r"(\n)", message):
            before, text, after = ends_of(line)
            parts += [before, texts.add(text) or text, after]
        ranges.append((start, end, lines[start].split('"')[0].rstrip(), parts))

    singular = singular_form(entries)
    begun = [entry for entry in entries if not entry.obsolete]
    starts = [number for number, line in enumerate(lines) if re.match(r'\ufeff?msgid[\s"]', line)]
    if len(starts) < len(begun):
        raise InputError(f"{name} is not a PO file: {len(begun)} entries, but {len(starts)} lines with msgid.")
    for entry, start in zip(begun, starts[len(starts) - len(begun) :], strict=True):  # the header comes before them
        if entry.fuzzy or entry.translated() or not entry.msgid:
            continue
        for number in range(start, next((one for one in starts if one > start), len(lines))):
            if lines[number].startswith("msgstr"):
                form = re.match(r"msgstr\[(\d+)", lines[number])
                add(number, entry.msgid_plural if form and int(form[1]) != singular else entry.msgid)

    def written(results) -> bytes:
        parts, position = [], 0
        for start, end, prefix, pieces in ranges:
            message = "".join(one if isinstance(one, str) else one(results) for one in pieces)
            line_end = "\r\n" if lines[start].endswith("\r\n") else "\n"
            parts += lines[position:start]
            parts.append(f'{prefix} "{_escaped(message)}"{line_end}')
            position = end
        result = "".join([*parts, *lines[position:]])
        try:
            return result.encode("ascii" if declared == PLACEHOLDER else encoding)
        except UnicodeEncodeError:
            return _ENCODING.sub(rb"\1UTF-8", result.encode(), count=1)

    notes = [f"{name}: {note}" for one in texts.texts for note in one.notes]
    return Document(texts.texts, written, notes)


def parsed(content: bytes, name: str) -> tuple[list[Any], str, str]:
    """Return the entries of a PO file, as polib reads them, its text, and its encoding."""
    try:
        import polib
    except ImportError as error:
        raise InputError("PO files need polib: pip install 'heedful[files]'.") from error
    match = _ENCODING.search(content)
    encoding = match[2].decode() if match and match[2] != PLACEHOLDER else "utf-8"
    try:
        text = content.decode(encoding)
    except (UnicodeDecodeError, LookupError) as error:
        raise InputError(f"{name} is not in {encoding}, the encoding that it names.") from error
    if "msgid" not in text:
        raise InputError(f"{name} is not a PO file: it has no msgid.")
    try:
        return polib.pofile(text), text, encoding
    except (OSError, ValueError, IndexError, KeyError, AttributeError, UnicodeError) as error:
        raise InputError(f"{name} is not a PO file: {error}.") from error


def singular_form(entries: Any) -> int:
    """Return the index of the form for the number 1 alone, by the header of a PO file; -1 if all numbers have one."""
    header = entries.metadata.get("Plural-Forms", "")
    rule = re.search(r"nplurals\s*=\s*(\d+)\s*;\s*plural\s*=\s*([^;]+)", header)
    if not rule:
        return 0
    try:
        return -1 if int(rule[1]) == 1 else gettext.c2py(rule[2])(1)
    except ValueError as error:
        raise InputError(f"The plural forms {header!r} of a PO file cannot be read: {error}.") from error


def _escaped(text):
    import polib

    return polib.escape(text)
