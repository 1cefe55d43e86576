"""Documents as people write them, through a translator that copies: what else than their text changes?

    python -m benchmarks.copied_documents FOLDER [FOLDER ...] [--count 500]

Reads the HTML, Markdown, PO and XLIFF files and subtitles below the folders; catalogues (.mo) as PO files without
translations. HTML must keep its tags in their order and its text, Markdown its rendering, PO must have each message as
its translation, all of these without regard to white space; other formats must keep every byte. Prints counts, and the
first difference of some documents.
"""

import argparse
import collections
import html
import itertools
import random
import re
from pathlib import Path

import polib
from markdown_it import MarkdownIt

from benchmarks.fuzz_documents import unchanged
from heedful.core.errors import InputError
from heedful.data.document_formats.html_document import encoding_of
from heedful.data.document_formats.po_document import parsed
from heedful.data.markup.html_tokens import html_tokens

SUFFIXES = (".html", ".htm", ".md", ".po", ".mo", ".xlf", ".srt", ".vtt")
LARGEST = 300_000  # bytes
SHOWN = 5  # differences of a format
RENDERED = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def main() -> None:
    """Print what changed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--count", type=int, default=500, help="documents of each format (default: 500)")
    options = parser.parse_args()
    paths = collections.defaultdict(list)
    for folder in options.folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix in SUFFIXES and path.is_file() and path.stat().st_size <= LARGEST:
                paths[path.suffix].append(path)
    for suffix, found in sorted(paths.items()):
        random.Random(1).shuffle(found)
        examine(suffix, found[: options.count])


def examine(suffix: str, paths: list[Path]) -> None:
    """Print what changed in the documents of a format."""
    counts: collections.Counter[str] = collections.Counter()
    shown = []
    for path in paths:
        content = as_po(path) if suffix == ".mo" else path.read_bytes()
        name = "a.po" if suffix == ".mo" else f"a{suffix}"
        try:
            written = unchanged(content, name)
        except InputError:
            counts["refused"] += 1
            continue
        counts["read"] += 1
        before, after = compared(content, name), compared(written, name)
        if before != after:
            counts["changed"] += 1
            shown.append((path, *first_difference(before, after)))
    print(f"{suffix:6s} {counts['read']:6,} read, {counts['refused']:4,} refused, {counts['changed']:4,} changed")
    for path, one, other in shown[:SHOWN]:
        print(f"       {path}\n         {one!r}\n         {other!r}")


def as_po(path: Path) -> bytes:
    """Return the messages of a catalogue as a PO file without translations."""
    po = polib.POFile(wrapwidth=0)
    po.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    for entry in polib.mofile(str(path)):
        plural = dict.fromkeys(entry.msgstr_plural, "") if entry.msgid_plural else {}
        po.append(polib.POEntry(
            msgid=entry.msgid, msgctxt=entry.msgctxt, msgid_plural=entry.msgid_plural, msgstr_plural=plural
        ))  # fmt: skip
    return str(po).encode()


def compared(content: bytes, name: str) -> list[str]:
    """Return what must stay of a document, in pieces."""
    if name.endswith((".html", ".htm")):
        tokens = html_tokens(content.decode(encoding_of(content, name), "replace"))
        text = "".join(html.unescape(token.raw) for token in tokens if token.kind == "text")
        return [*(token.raw for token in tokens if token.kind != "text"), without_space(text)]
    if name.endswith(".md"):
        return [without_space(RENDERED.render(content.decode("utf-8", "replace").removeprefix("\ufeff")))]
    if name.endswith(".po"):
        # An entry without a translation counts as one whose translation is the message.
        return [
            without_space(text)
            for entry in parsed(content, name)[0]
            for index, one in enumerate(entry.msgstr_plural.values() if entry.msgid_plural else [entry.msgstr])
            for text in [one or (entry.msgid_plural if index else entry.msgid)]
        ]
    return [content.decode("utf-8", "replace")]


def without_space(text: str) -> str:
    """Return a text without its white space."""
    return re.sub(r"[\s\xad]+", "", text)


def first_difference(before: list[str], after: list[str]) -> tuple[str, str]:
    """Return where two lists of pieces first differ, with what surrounds it."""
    pairs = itertools.zip_longest(before, after, fillvalue="")
    one, other = next((one, other) for one, other in pairs if one != other)
    lengths = range(min(len(one), len(other)))
    position = next((n for n in lengths if one[n] != other[n]), len(lengths))
    return one[max(0, position - 40) : position + 40], other[max(0, position - 40) : position + 40]


if __name__ == "__main__":
    main()
