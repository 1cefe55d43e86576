"""Translation memories as training text: PO, XLIFF and TMX; what is not translated, or fuzzy, is left out."""

import codecs
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from heedful.config.protected import Protection
from heedful.core.errors import InputError
from heedful.data.document_formats.document import unwrapped
from heedful.data.document_formats.po_document import parsed, singular_form
from heedful.data.document_formats.xliff_document import CODES, segments
from heedful.data.document_formats.xml_events import xml_events
from heedful.data.markup.marked_text import marked
from heedful.data.text_files import read_bytes, uncompressed_name

Pairs = Iterator[tuple[str, str]]
TABLE = ".tsv"
DECLARED = re.compile(rb"""<\?xml[^>]*?\bencoding\s*=\s*["']([\w.-]+)["']""")  # the encoding in an XML declaration
# First bytes of files by their encoding: byte order marks, the longer ones first, and `<?` in UTF-16 without a mark.
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32", codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16", b"<\0?\0": "utf-16-le", b"\0<\0?": "utf-16-be",
}  # fmt: skip


def is_bilingual(path: str | Path) -> bool:
    """Return whether a file is a translation memory by its name; `.gz` and the like may follow."""
    return _ending(path) in READERS


def has_both_sides(path: str | Path) -> bool:
    """Return whether each line, or entry, of a file has source and target, by its name."""
    return _ending(path) == TABLE or is_bilingual(path)


def _ending(path):
    return Path(uncompressed_name(path)).suffix.lower()


def read_bilingual(path: Path) -> Pairs:
    """Yield the pairs of source and target in a file, each on one line and without tags of XML.

    Raises:
        InputError: the file is damaged, or of another format than its name says; or a TMX has other than two languages,
            or no translation from the language of its header.
    """
    ending, content = _ending(path), read_bytes(path)
    if ending != PO:
        content = _in_utf8(content, str(path))
    for source, target in READERS[ending](content, str(path)):
        source, target = unwrapped(source).strip(), unwrapped(target).strip()
        if source and target:
            yield source, target


def _in_utf8(content: bytes, name: str) -> bytes:
    """Return an XML file in UTF-8; it is in the encoding of its first bytes, UTF-8, or the one that it declares."""
    encoding = next((encoding for mark, encoding in MARKS.items() if content.startswith(mark)), "utf-8")
    declared = DECLARED.match(content[:200])
    try:
        try:
            return content.decode(encoding).encode()
        except UnicodeDecodeError:
            if not declared:
                raise
            encoding = declared[1].decode()
            return content.decode(encoding).encode()
    except (UnicodeError, LookupError) as error:
        raise InputError(f"{name} cannot be read as {encoding}, its encoding.") from error


def _po_pairs(content: bytes, name: str) -> Pairs:
    entries, _, _ = parsed(content, name)
    singular = singular_form(entries)
    for entry in entries:
        if entry.fuzzy or entry.obsolete or not entry.translated():
            continue
        if entry.msgid_plural:
            forms = entry.msgstr_plural
            if singular in forms:
                yield entry.msgid, forms[singular]
            yield entry.msgid_plural, forms[max(forms)]
        else:
            yield entry.msgid, entry.msgstr


def _xliff_pairs(content: bytes, name: str) -> Pairs:
    for segment in segments(content, name):
        if segment.finished and segment.target:
            yield _plain(content[slice(*segment.source)]), _plain(content[slice(*segment.content)])


def _tmx_pairs(content: bytes, name: str) -> Pairs:
    first = ""  # language of the sources
    begun: list[tuple[str, int]] = []
    texts: list[tuple[str, str]] = []
    language, has_pairs, languages = "", False, set[str]()
    for event in xml_events(content, name):
        if event.opens:
            begun.append((event.name, event.end))
            if event.name == "header":
                first = _code(event.attributes.get("srclang", "").replace("*all*", ""))
            elif event.name == "tu":
                texts = []
            elif event.name == "tuv":
                language = _code(event.attributes.get("xml:lang") or event.attributes.get("lang", ""))
                first = first or language
                languages.add(language)
            continue
        tag, start = begun.pop()
        if tag == "seg":
            texts.append((language, _plain(content[start : max(start, event.start)])))
        elif tag == "tu":
            pairs = _pairs_of_unit(texts, first, name)
            has_pairs = has_pairs or bool(pairs)
            yield from pairs
    if languages and not has_pairs:
        raise InputError(
            f"{name} has no pairs: its sources are in {first!r}, and its texts in {', '.join(sorted(languages))}."
        )


def _pairs_of_unit(texts: list[tuple[str, str]], first: str, name: str) -> list[tuple[str, str]]:
    """Return the pairs of a unit of a TMX: its texts in the language `first`, each with its translation.

    Regions tell languages apart only if nothing else does: texts in en-US and en-GB have the same translation.
    """
    base = first.split("-")[0]
    sources = [code for code, _ in texts if code.split("-")[0] == base]
    if len(sources) == len(texts):
        sources = [code for code in sources if code == first]
    targets = list(dict.fromkeys(code for code, _ in texts if code not in sources))
    if not sources:
        return []
    if len({code.split("-")[0] for code in targets}) > 1:
        raise InputError(
            f"{name} has more than two languages ({', '.join(code for code, _ in texts)}): it must have two."
        )
    return [
        (text, translation)
        for code, text in texts if code in sources
        for other, translation in texts if other in targets[:1]
    ]  # fmt: skip


def _code(language: str) -> str:
    return language.replace("_", "-").lower()


def _plain(raw: bytes) -> str:
    """Return the text of XML without its tags, and without the code in them."""
    return marked(raw.decode(), "xml", Protection(), codes=CODES).text


PO = ".po"
READERS: dict[str, Callable[[bytes, str], Pairs]] = {
    PO: _po_pairs, ".xlf": _xliff_pairs, ".xliff": _xliff_pairs, ".tmx": _tmx_pairs,
}  # fmt: skip
