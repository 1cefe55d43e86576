"""Translation memories as training text: PO, XLIFF and TMX; what is not translated, or fuzzy, is left out."""

from collections.abc import Callable, Iterator
from pathlib import Path

from heedful.config.protected import Protection
from heedful.core.errors import InputError
from heedful.data.document_formats.document import unwrapped
from heedful.data.document_formats.po_document import parsed
from heedful.data.document_formats.xliff_document import CODES, segments
from heedful.data.document_formats.xml_events import xml_events
from heedful.data.markup.marked_text import marked

Pairs = Iterator[tuple[str, str]]


def read_bilingual(path: Path) -> Pairs:
    """Yield the pairs of source and target in a file, each on one line and without tags of XML.

    Raises:
        InputError: the file is damaged, or of another format than its name says; or a TMX has other than two languages.
    """
    for source, target in READERS[path.suffix.lower()](path.read_bytes(), str(path)):
        source, target = unwrapped(source).strip(), unwrapped(target).strip()
        if source and target:
            yield source, target


def _po_pairs(content: bytes, name: str) -> Pairs:
    entries, _, _ = parsed(content, name)
    for entry in entries:
        if entry.fuzzy or entry.obsolete or not entry.translated():
            continue
        if entry.msgid_plural:
            forms = [form for _, form in sorted(entry.msgstr_plural.items())]
            yield entry.msgid, forms[0]
            yield entry.msgid_plural, forms[-1]
        else:
            yield entry.msgid, entry.msgstr


def _xliff_pairs(content: bytes, name: str) -> Pairs:
    for segment in segments(content, name):
        if segment.finished and segment.target:
            yield _plain(content[slice(*segment.source)]), _plain(content[slice(*segment.content)])


def _tmx_pairs(content: bytes, name: str) -> Pairs:
    first = ""  # language of the sources
    begun: list[tuple[str, int]] = []
    texts: dict[str, str] = {}
    language = ""
    for event in xml_events(content, name):
        if event.opens:
            begun.append((event.name, event.end))
            if event.name == "header":
                first = _code(event.attributes.get("srclang", "").replace("*all*", ""))
            elif event.name == "tu":
                texts = {}
            elif event.name == "tuv":
                language = _code(event.attributes.get("xml:lang") or event.attributes.get("lang", ""))
                first = first or language
            continue
        tag, start = begun.pop()
        if tag == "seg":
            texts[language] = _plain(content[start : max(start, event.start)])
        elif tag == "tu" and first in texts:
            others = [text for code, text in texts.items() if code != first]
            if len(others) > 1:
                raise InputError(f"{name} has more than two languages ({', '.join(texts)}): it must have two.")
            yield from ((texts[first], other) for other in others)


def _code(language: str) -> str:
    return language.split("-")[0].lower()


def _plain(raw: bytes) -> str:
    """Return the text of XML without its tags, and without the code in them."""
    return marked(raw.decode(), "xml", Protection(), codes=CODES).text


READERS: dict[str, Callable[[bytes, str], Pairs]] = {
    ".po": _po_pairs, ".xlf": _xliff_pairs, ".xliff": _xliff_pairs, ".tmx": _tmx_pairs,
}  # fmt: skip
