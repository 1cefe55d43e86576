"""Damaged documents: no traceback, no lost letter, no growing memory.

    python -m benchmarks.fuzz_documents [COUNT]

Seeds are pages of the documentation, the README, and a PO and an XLIFF file in this module. Each mutation cuts,
doubles, swaps or replaces a few pieces. What can be read must keep every letter of its text when it is written with
unchanged translations; what cannot must be refused with an `InputError`.
"""

import collections
import html
import random
import resource
import sys
from pathlib import Path

import numpy as np

from heedful.config import DecodeConfig
from heedful.config.protected import Protection
from heedful.core.errors import InputError
from heedful.data.document_formats import read_document
from heedful.data.markup.html_tokens import html_tokens
from heedful.data.sentences import SentenceSplitter
from heedful.inference.line_reader import LineReader

PROTECTION = Protection()
SPLITTER = SentenceSplitter("en", lambda texts: [len(text.split()) for text in texts], 100)
READER, DECODE = LineReader(SPLITTER, PROTECTION), DecodeConfig(split="always")
ROOT = Path(__file__).parent.parent
PO = """msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"

#, c-format
msgid "open %s"
msgstr ""

#, fuzzy
msgid "a file"
msgstr "eine Datei?"

msgid "%d file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""
"""
XLIFF = """<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2"><file original="a" source-language="en" datatype="x"><body>
<trans-unit id="1"><source>a <g id="1">red</g> hat &amp; <x id="2"/>head</source></trans-unit>
<trans-unit id="2"><source>two <ph id="1">&lt;b></ph>hats</source><target state="new"/></trans-unit>
</body></file></xliff>
"""
PIECES = [
    "<", ">", "</", "/>", '"', "'", "&", "&amp;", "<b>", "</b>", "<!--", "-->", "<![CDATA[", "]]>", "\n", "\x00", "\\",
    "`", "**", "[", "](", "|", "msgid", "msgstr", "{", "}", "%s", "é", "字", "\u202e", "<p>", "</p>", "]",
]  # fmt: skip


def mutated(text: str, chance: random.Random) -> str:
    """Return a text with a few changes."""
    for _ in range(chance.randint(1, 8)):
        start = chance.randrange(len(text) + 1)
        end = min(len(text), start + chance.choice([0, 1, 3, 20]))
        kind = chance.randrange(4)
        if kind == 0:
            text = text[:start] + text[end:]
        elif kind == 1:
            text = text[:start] + chance.choice(PIECES) + text[start:]
        elif kind == 2:
            text = text[:start] + text[start:end] * 2 + text[end:]
        else:
            text = text[:start] + chance.choice(PIECES) + text[end:]
    return text


def unchanged(content: bytes, name: str) -> bytes:
    """Return a document written with its own texts as translations."""
    document = read_document(content, name, PROTECTION)
    results = []
    for text in document.texts:
        line = READER.read_marked(text, DECODE, "text")
        written, marked = line.pieces.texts, line.marked
        assert marked is not None
        pairs = marked.to_align(written)
        results.append(marked.restored(written, [np.eye(len(t.words), len(s.words)) for s, t in pairs]))
    return document.written(results)


def letters(content: bytes, name: str) -> collections.Counter[str]:
    """Return how often each letter and digit occurs in the text of a document."""
    text = content.decode()
    if name.endswith(("html", "xlf")):
        text = "".join(html.unescape(token.raw) for token in html_tokens(text) if token.kind == "text")
    return collections.Counter(character for character in text if character.isalnum())


def main() -> None:
    """Print for each format how many were read and refused, and how much memory the process used."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    pages = sorted((ROOT / "docs" / "_build" / "html" / "guides").glob("*.html"))[:3]
    seeds = [("a.po", PO), ("a.xlf", XLIFF), ("a.md", (ROOT / "README.md").read_text())]
    page = "<html><p>Ein <b>Hut</b><br>und <a href='x'>ein &amp; Kopf</a></p><pre>x</pre><script>a<b</script></html>"
    seeds += [("a.html", path.read_text()[:20_000]) for path in pages] or [("a.html", page)]
    seeds.append(("b.html", page))
    chance = random.Random(1)
    for name, seed in seeds:
        read = refused = lost = 0
        share = count // len(seeds)
        for number in range(share):
            if number == share // 10:
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            content = mutated(seed, chance).encode("utf-8", "replace")
            try:
                result = unchanged(content, name)
            except InputError:
                refused += 1
                continue
            read += 1
            lost += bool(letters(content, name) - letters(result, name))
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        counts = f"{read:6,} read, {refused:6,} refused, {lost} with lost letters"
        print(f"{name:6s} {counts}; memory grew by {grown:.0f} MB")


if __name__ == "__main__":
    main()
