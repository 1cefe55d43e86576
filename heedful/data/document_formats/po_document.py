"""PO files of gettext: entries without a translation are translated; fuzzy and translated ones stay as they are."""

import gettext
import re
from collections.abc import Callable, Sequence
from typing import Any

from heedful.config.protected import Protection
from heedful.core.errors import InputError, extra_needed
from heedful.data.document_formats.document import Document, TextCollector, ends_of
from heedful.data.markup.marked_text import marked
from heedful.data.markup.messages import message_pieces

_HEADER = re.compile(rb'^msgid[ \t]+""\s*^msgstr\s+(?:"[^\n]*"\s*)+', re.MULTILINE)
_ENCODING = re.compile(rb"charset=([\w.:-]+)", re.IGNORECASE)
PLACEHOLDER = b"CHARSET"  # stands for the encoding in a file that xgettext has written


def read(content: bytes, name: str, protection: Protection) -> Document:
    """Read a PO file in the encoding that its header names; with letters that this lacks, it is written in UTF-8.

    Raises:
        InputError: it is not a PO file.
    """
    entries, text, encoding = parsed(content, name)
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
        declared = _declared(content)
        try:
            return result.encode("ascii" if declared and declared[1] == PLACEHOLDER else encoding)
        except UnicodeEncodeError:
            changed = result.encode()
            declared = _declared(changed)
            return changed[: declared.start(1)] + b"UTF-8" + changed[declared.end(1) :] if declared else changed

    notes = [f"{name}: {note}" for one in texts.texts for note in one.notes]
    return Document(texts.texts, written, notes)


def parsed(content: bytes, name: str) -> tuple[list[Any], str, str]:
    """Return the entries of a PO file, as polib reads them, its text, and its encoding."""
    with extra_needed("files", "PO files need polib"):
        import polib
    declared = _declared(content)
    encoding = declared[1].decode() if declared and declared[1] != PLACEHOLDER else "utf-8"
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


def _declared(content: bytes) -> re.Match[bytes] | None:
    """Return where the header of a PO file names its encoding; None if it does not."""
    header = _HEADER.search(content)
    return _ENCODING.search(content, *header.span()) if header else None


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
