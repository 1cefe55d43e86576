"""Documents: only text changes, and other programs read the result."""

import codecs
import gzip
import html
import io
import itertools
import json
import re
import zipfile
from pathlib import Path

import docx
import hypothesis.strategies as st
import numpy as np
import polib
import pysubs2
import pytest
from docx.enum.style import WD_STYLE_TYPE
from hypothesis import given
from lxml import etree

from heedful.cli import main
from heedful.config import DataConfig
from heedful.config.protected import Protection
from heedful.core.errors import InputError
from heedful.core.plugins import find_task
from heedful.data.corpus import Corpus
from heedful.data.doctor.rows import Rows
from heedful.data.document_formats import FORMATS, is_document, read_document
from heedful.data.document_formats.document import wrapped
from heedful.data.glossary import Glossary
from heedful.data.markup.html_tokens import html_tokens
from heedful.data.sentences import Pieces
from heedful.inference.marked_line import MarkedLine

pytestmark = pytest.mark.any_backend

PLAIN = Protection()


def through(content, name, change=str.upper):
    """Return a document whose texts are changed word by word."""
    content = content.encode() if isinstance(content, str) else content
    document = read_document(content, name, PLAIN)
    results = []
    for text in document.texts:
        line = MarkedLine(text, Pieces([text.text], [], []), PLAIN)
        [sentence] = line.sentences
        written, end = "", 0
        for place in sentence.places:  # what is protected stays
            written += change(sentence.source[end : place.start]) + place.shown
            end = place.end
        written += change(sentence.source[end:])
        pairs = line.to_align([written])
        results.append(line.restored([written], [np.eye(len(t.words), len(s.words)) for s, t in pairs]))
    return document.written(results).decode("utf-8", "replace") if name[-4:] != "docx" else document.written(results)


PAGE = """<!DOCTYPE html>
<html lang="de"><head><title>ein Hut</title><style>p { color: red }</style></head>
<body class='a'><!-- bleibt -->
<h1 id="x">der <em>rote</em> Hut</h1>
<p>Ein Hut &amp; ein <a href="b.html?c=d&amp;e">Kopf</a><br>und <code>f(x)</code>.
<ul><li>eins<li><b>zwei</b></ul>
<pre>  nicht   so </pre><p translate="no">Marke</p>
<script>if (a < b) { c("<p>text</p>") }</script>
<img src="y.png" alt="ein Bild"> <button>los</button></body></html>
"""


def test_html_keeps_all_but_its_text():
    assert through(PAGE, "a.html", str) == PAGE.replace("<br>und", "<br>und")
    result = through(PAGE, "a.html")
    assert "<title>EIN HUT</title>" in result
    assert '<h1 id="x">DER <em>ROTE</em> HUT</h1>' in result
    assert '<p>EIN HUT &amp; EIN <a href="b.html?c=d&amp;e">KOPF</a><br>UND <code>f(x)</code>.' in result
    assert "<li>EINS<li><b>ZWEI</b>" in result
    assert "<button>LOS</button>" in result
    for kept in ("<pre>  nicht   so </pre>", '<p translate="no">Marke</p>', "<!-- bleibt -->", 'alt="ein Bild"'):
        assert kept in result
    tags = [[token.raw for token in html_tokens(text) if token.kind != "text"] for text in (PAGE, result)]
    assert tags[0] == tags[1]


@given(st.text(alphabet=list("<>/pbi a\n&;!-\"'=x"), max_size=120))
def test_any_html_is_read_and_no_word_is_lost(text):
    result = through(text, "a.html", str)
    shown = [html.unescape("".join(t.raw for t in html_tokens(one) if t.kind == "text")) for one in (text, result)]
    assert sorted(re.findall(r"\w+", shown[0])) == sorted(re.findall(r"\w+", shown[1]))


MARKDOWN = """---
title: nicht
---
# Der *rote* Hut #

Ein **Hut** auf
  dem [Kopf](http://a.b/c "Titel"), `code` und ![Bild](x.png).
Zeile zwei\\
Zeile drei

* eins
  > zitat
1. zwei

| Kopf | Fuß |
|------|-----|
| eins | `y` |

    kein text

```python
kein = "text"
```

<p align="center">ein <b>Hut</b> &lt;b&gt; &amp;</p>

[ref]: http://a.b
"""


def test_markdown_keeps_all_but_its_text():
    result = through(MARKDOWN, "README.md")
    for line in (
        "# DER *ROTE* HUT #",
        'EIN **HUT** AUF DEM [KOPF](http://a.b/c "Titel"), `code` UND ![BILD](x.png). ZEILE ZWEI\\',
        "ZEILE DREI", "* EINS", "  > ZITAT", "1. ZWEI", "| KOPF | FUSS |", "| EINS | `y` |", "    kein text",
        'kein = "text"', '<p align="center">EIN <b>HUT</b> &lt;B&gt; &amp;</p>', "[ref]: http://a.b", "title: nicht",
    ):  # fmt: skip
        assert line in result.splitlines(), line


PO = """# Kommentar
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

#: a.c:1
#, c-format
msgid "hat with %d heads"
msgstr ""

#, fuzzy
msgid "a hat"
msgstr "ein Hut?"

msgid "done"
msgstr "fertig"

msgctxt "menu"
msgid "%d hat\\n"
msgid_plural ""
"%d hats "
"here\\n"
msgstr[0] ""
msgstr[1] ""

#~ msgid "old"
#~ msgstr ""
"""


def test_po_translates_what_has_no_translation():
    result = through(PO, "de.po")
    entries = {(entry.msgctxt, entry.msgid): entry for entry in polib.pofile(result)}
    assert entries[None, "hat with %d heads"].msgstr == "HAT WITH %d HEADS"
    assert entries[None, "a hat"].msgstr == "ein Hut?"
    assert entries[None, "done"].msgstr == "fertig"
    assert entries["menu", "%d hat\n"].msgstr_plural == {0: "%d HAT\n", 1: "%d HATS HERE\n"}
    changed = set(result.splitlines()) - set(PO.splitlines())
    assert changed == {
        'msgstr "HAT WITH %d HEADS"', 'msgstr[0] "%d HAT\\n"', 'msgstr[1] "%d HATS HERE\\n"',
    }  # fmt: skip


def test_po_in_another_encoding():
    latin = PO.replace("UTF-8", "ISO-8859-1").replace("heads", "Köpfe").encode("latin-1")
    document = read_document(latin, "de.po", PLAIN)
    assert b"K\xf6pfe" in document.written(["x %d"] * len(document.texts))
    for declared in ("ISO-8859-1", "ASCII", "CHARSET"):  # the last by xgettext, in what msginit has not read
        po = PO.replace("UTF-8", declared).replace(" charset", '"\n"charset')
        po = po.replace("Kommentar", "Jörg: charset=KOI8-R") if declared == "ISO-8859-1" else po
        document = read_document(po.encode("latin-1"), "de.po", PLAIN)
        same, other = (document.written([f"{text} %d"] * len(document.texts)) for text in ("Hxt", "字"))
        same, other = same.decode("latin-1"), other.decode()
        assert declared in same
        assert other == same.replace("Hxt", "字").replace(declared, "UTF-8")
    with pytest.raises(InputError, match=r"is not in UTF-8, the encoding that it names"):
        read_document(PO.replace("heads", "Köpfe").encode("latin-1"), "de.po", PLAIN)


XLIFF = """<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file original="a" source-language="en"
 datatype="plaintext"><body>
<trans-unit id="1"><source>a <g id="1">red</g> hat &amp; <x id="2"/>head</source></trans-unit>
<trans-unit id="2"><source>done</source><target>fertig</target></trans-unit>
<trans-unit id="3"><source>two <ph id="1">&lt;b></ph>hats</source><target state="new"/></trans-unit>
<trans-unit id="4" translate="no"><source>brand</source></trans-unit>
</body></file></xliff>
"""


def test_xliff_gets_targets():
    result = through(XLIFF, "a.xlf")
    root = etree.fromstring(result.encode())
    names = {"x": "urn:oasis:names:tc:xliff:document:1.2"}
    targets = {unit.get("id"): unit.find("x:target", names) for unit in root.iterfind(".//x:trans-unit", names)}
    assert "".join(targets["1"].itertext()) == "A RED HAT & HEAD"
    assert targets["1"].find("x:g", names).text == "RED"
    assert targets["2"].text == "fertig"
    assert "".join(targets["3"].itertext()) == "TWO <b>HATS"
    assert targets["3"].get("state") == "new"
    assert targets["4"] is None
    without = re.sub(r"<target[^>]*>.*?</target>|<target[^>]*/>", "", result)
    assert without == re.sub(r"<target[^>]*>.*?</target>|<target[^>]*/>", "", XLIFF)


def test_xliff_2():
    text = (
        '<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en"><file id="f"><unit id="1">'
        '<segment><source>a <pc id="1">red</pc> hat<ph id="2"/></source></segment></unit></file></xliff>'
    )
    assert '</source><target>A <pc id="1">RED</pc> HAT<ph id="2"/></target></segment>' in through(text, "a.xliff")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><xliff>&a;</xliff>', "declares entities"),
        ("<xliff><file></xliff>", "is not well-formed XML"),
    ],
)
def test_xliff_that_is_not_safe_or_not_well_formed_is_refused(content, message):
    with pytest.raises(InputError, match=message):
        through(content, "a.xlf")


SRT = """1
00:00:01,000 --> 00:00:03,500
ein Mann sitzt auf einer Bank
und liest <i>eine Zeitung</i>.

2
00:00:04,000 --> 00:00:06,000
- eins.
- zwei.
"""


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_subtitles(ends):
    result = through(SRT.replace("\n", ends), "a.srt")
    assert result.replace("\r\n", "\n").count("\n") == SRT.count("\n")
    assert result.count(ends) == SRT.count("\n")
    cues = pysubs2.SSAFile.from_string(result)
    assert [(cue.start, cue.end) for cue in cues] == [(1000, 3500), (4000, 6000)]
    assert cues[0].plaintext.split() == "EIN MANN SITZT AUF EINER BANK UND LIEST EINE ZEITUNG.".split()
    assert "<i>EINE ZEITUNG</i>" in result.replace(ends, " ").replace("  ", " ")
    assert cues[1].plaintext.split() == ["-", "EINS.", "-", "ZWEI."]


def test_webvtt_keeps_its_blocks():
    text = "WEBVTT\n\nNOTE kein Text\n\nSTYLE\n::cue { color: red }\n\na\n00:01.000 --> 00:02.000 align:left\nein Hut\n"
    assert through(text, "a.vtt") == text.replace("ein Hut", "EIN HUT")
    with pytest.raises(InputError, match="has no cue"):
        through("nothing", "a.srt")


@given(st.lists(st.text("ab", min_size=1, max_size=9), min_size=1, max_size=12), st.integers(1, 5))
def test_wrapping_keeps_all_words(words, lines):
    text = " ".join(words)
    parts = wrapped(text, lines)
    assert " ".join(parts) == text
    assert len(parts) == min(lines, len(words))


def word_file(save=True):
    document = docx.Document()
    document.add_heading("ein Hut", 1)
    paragraph = document.add_paragraph("ein Mann mit ")
    paragraph.add_run("rotem Hut").bold = True
    paragraph.add_run(" sitzt & wartet")
    document.add_table(1, 2).cell(0, 1).text = "zwei %s"
    document.sections[0].header.paragraphs[0].text = "oben"
    stream = io.BytesIO()
    document.save(stream)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("runs", "translation", "rows", "expected"),
    [
        ([("rote", "bold"), (" Hut", "")], "hat red", [1, 0], [("hat", ""), ("red", "bold")]),
        ([("ich ", ""), ("habe", "bold"), (" einen ", ""), ("Hut", "italic"), (" gesehen", "bold")], "I saw have a hat",
         [0, 4, 1, 2, 3], [("I", ""), ("saw have", "bold"), ("a", ""), ("hat", "italic")]),
        ([("nimm ", ""), ("ls -l", "code"), (" und ", ""), ("cd", "code")], "cd and ls -l take it", [3, 2, 1, 0, 0],
         [("cd", "code"), ("and", ""), ("ls -l", "code"), ("take it", "")]),
    ],
)  # fmt: skip
def test_words_of_word_files_have_the_order_of_the_translation(runs, translation, rows, expected):
    """Formatting goes with the words; `rows`: for each word of the translation the one of the source."""
    document = docx.Document()
    document.styles.add_style("Verbatim Char", WD_STYLE_TYPE.CHARACTER)
    paragraph = document.add_paragraph()
    for text, form in runs:
        run = paragraph.add_run(text)
        run.bold, run.italic = form == "bold" or None, form == "italic" or None
        run.style = "Verbatim Char" if form == "code" else None
    stream = io.BytesIO()
    document.save(stream)
    document = read_document(stream.getvalue(), "a.docx", PLAIN)
    line = MarkedLine(document.texts[0], Pieces([document.texts[0].text], [], []), PLAIN)
    matrices = [np.eye(len(source.words))[rows] for source, _ in line.to_align([translation])]
    written = document.written([line.restored([translation], matrices)])
    shown = [
        (run.text, "bold" if run.bold else "italic" if run.italic else "code" if run.style.name[0] == "V" else "")
        for run in docx.Document(io.BytesIO(written)).paragraphs[0].runs if run.text
    ]  # fmt: skip
    assert "".join(text for text, _ in shown) == translation
    merged = itertools.groupby(shown, lambda one: one[1])
    assert [("".join(text for text, _ in same).strip(), form) for form, same in merged] == expected


def run_of(text, form=""):
    return f'<w:r>{form}<w:t xml:space="preserve">{text}</w:t></w:r>'


@pytest.mark.parametrize(
    ("body", "translation", "rows", "expected"),
    [
        (f'{run_of("alt ")}<w:hyperlink r:id="9">{run_of("Seite")}</w:hyperlink>{run_of(" neu")}', "new page old",
         [2, 1, 0], 'new <w:hyperlink r:id="9">page</w:hyperlink> old'),
        (f'{run_of("alt ")}<w:fldSimple w:instr="A">{run_of("Seite")}</w:fldSimple>', "page old", [1, 0],
         '<w:fldSimple w:instr="A">page</w:fldSimple> old'),
        (f'<w:fldSimple w:instr="A">{run_of("eins ")}</w:fldSimple>'
         f'<w:fldSimple w:instr="B">{run_of("zweimal")}</w:fldSimple>', "twice one", [1, 0],
         '<w:fldSimple w:instr="A"></w:fldSimple><w:fldSimple w:instr="B">twice</w:fldSimple> one'),
        (f'<w:ins w:id="1">{run_of("rot ")}</w:ins>{run_of("Hut")}', "hat red", [1, 0],
         'hat <w:ins w:id="1">red</w:ins>'),
        (f'<w:hyperlink r:id="1"><w:ins w:id="2">{run_of("Seite")}</w:ins></w:hyperlink>{run_of(" und ")}'
         f'<w:hyperlink r:id="3">{run_of("Hutmacher")}</w:hyperlink>', "hatter and page", [2, 1, 0],
         '<w:ins w:id="2"></w:ins></w:hyperlink><w:hyperlink r:id="3">hatter</w:hyperlink> and page'),
        (f'{run_of("  rot ", "<w:rPr><w:b/></w:rPr>")}{run_of("Hut ")}', "hat red", [1, 0], "  hat red "),
    ],
)  # fmt: skip
def test_words_leave_no_link_and_enter_none(body, translation, rows, expected):
    document = read_document(word_file_of(f"<w:p>{body}</w:p>"), "a.docx", PLAIN)
    line = MarkedLine(document.texts[0], Pieces([document.texts[0].text], [], []), PLAIN)
    matrices = [np.eye(len(source.words))[rows] for source, _ in line.to_align([translation])]
    with zipfile.ZipFile(io.BytesIO(document.written([line.restored([translation], matrices)]))) as archive:
        written = archive.read("word/document.xml").decode()
    etree.fromstring(written.encode())
    shown = re.sub(r"</?w:(?:r|t|rPr|b)\b[^>]*>", "", written)
    assert expected in shown


@pytest.mark.parametrize("text", ["ein \ue002 Hut", "\ue000 Hut", "\ue0007\ue001 Hut"])
@pytest.mark.parametrize("other", ["", run_of(" da", "<w:rPr><w:b/></w:rPr>")], ids=["one run", "two"])
def test_characters_for_private_use_are_text_of_word_files(text, other):
    result = through(word_file_of(f"<w:p>{run_of(text)}{other}</w:p>"), "a.docx")
    assert docx.Document(io.BytesIO(result)).paragraphs[0].text.startswith(text.upper())


def test_changes_of_styles_are_no_styles():
    old = '<w:rPrChange w:id="1"><w:rPr><w:rStyle w:val="HTMLCode"/></w:rPr></w:rPrChange>'
    was = '<w:pPr><w:pPrChange w:id="2"><w:pPr><w:pStyle w:val="HTMLCode"/></w:pPr></w:pPrChange></w:pPr>'
    for style, is_code in (("HTML Code", True), ("Postal Code", False), ("Code of Conduct", False), ("code", True)):
        content = word_file_of(
            f'<w:p>{was}{run_of("ein", f"<w:rPr><w:b/>{old}</w:rPr>")}'
            f"""{run_of(" Hut", '<w:rPr><w:rStyle w:val="X"/></w:rPr>')}</w:p>""",
            f'<w:style w:type="character" w:styleId="X"><w:name w:val="{style}"/></w:style>'
            '<w:style w:type="character" w:styleId="HTMLCode"><w:name w:val="HTML Code"/></w:style>',
        )  # fmt: skip
        [text] = read_document(content, "a.docx", PLAIN).texts
        assert [slot.kind for slot in text.slots] == ["code"] * is_code


def test_code_in_word_files_stays():
    document = docx.Document()
    document.styles.add_style("Source Code", WD_STYLE_TYPE.PARAGRAPH)
    document.add_paragraph("ls -l foo", style="Source Code")
    document.add_paragraph("ein Hut")
    stream = io.BytesIO()
    document.save(stream)
    result = docx.Document(io.BytesIO(through(stream.getvalue(), "a.docx")))
    assert [paragraph.text for paragraph in result.paragraphs] == ["ls -l foo", "EIN HUT"]


def test_word_files_keep_their_formatting():
    content = word_file()
    result = through(content, "a.docx")
    document = docx.Document(io.BytesIO(result))
    assert document.paragraphs[0].text == "EIN HUT"
    assert document.paragraphs[0].style.name == "Heading 1"
    assert [(run.text, bool(run.bold)) for run in document.paragraphs[1].runs] == [
        ("EIN MANN MIT ", False), ("ROTEM HUT", True), (" SITZT & WARTET", False),
    ]  # fmt: skip
    assert document.tables[0].cell(0, 1).text == "ZWEI %s"
    assert document.sections[0].header.paragraphs[0].text == "OBEN"
    one, other = (zipfile.ZipFile(io.BytesIO(data)) for data in (content, result))
    assert one.namelist() == other.namelist()
    changed = {name for name in one.namelist() if one.read(name) != other.read(name)}
    assert changed == {"word/document.xml", "word/header1.xml"}


def test_a_bomb_and_what_is_no_word_file_are_refused():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b"0" * (300 << 20))
    with pytest.raises(InputError, match=r"^a\.docx unpacks to far more than its size"):
        through(stream.getvalue(), "a.docx")
    with pytest.raises(InputError, match="is not a Word file"):
        through(b"PK\x03\x04 nothing", "a.docx")
    damaged = bytearray(word_file())
    damaged[200:220] = bytes(20)
    with pytest.raises(InputError, match=r"a\.docx"):
        through(bytes(damaged), "a.docx")


def test_compressed_documents_are_refused():
    """Guards against a document that is translated as lines: its markup would go through the model."""
    for name in ("a.po.gz", "a.html.xz"):
        with pytest.raises(InputError, match=rf"{name}: documents are read uncompressed"):
            is_document(Path(name))
    assert not is_document(Path("a.txt.gz"))


def test_formats_are_known_by_their_names(tmp_path):
    assert is_document(tmp_path / "a.HTML")
    assert not is_document(tmp_path / "a.txt")
    with pytest.raises(InputError, match=r"\.pdf files cannot be translated; known are .*\.html"):
        is_document(tmp_path / "a.pdf")
    with pytest.raises(InputError, match=r"known are .*\.docx"):
        read_document(b"", "a.odt", PLAIN)
    for suffix in FORMATS:
        with pytest.raises(InputError):
            read_document(b"\xff\xfe\x00", f"a{suffix}", PLAIN)


def test_the_command_translates_a_document(whole, tmp_path, capsys):
    page = tmp_path / "page.html"
    page.write_text("<p>o <b>gato</b> bebe</p>\n")
    out = tmp_path / "page.en.html"
    assert main(["translate", str(whole.path), str(page), "--out", str(out)]) == 0
    assert re.fullmatch(r"<p>.*<b>.*</b>.*</p>\n", out.read_text())
    assert page.read_text() == "<p>o <b>gato</b> bebe</p>\n"
    for arguments, message in (
        ([str(page)], "give --out"),
        ([str(page), "--out", str(page)], "is the input file"),
        ([str(page), "--out", str(out), "--scores"], "--scores is for lines"),
        ([str(tmp_path / "none.html"), "--out", str(out)], "does not exist"),
        ([str(tmp_path / "a.pdf"), "--out", str(out)], "cannot be translated"),
    ):
        assert main(["translate", str(whole.path), *arguments]) == 2
        assert message in capsys.readouterr().err


TMX = """<?xml version="1.0"?><tmx version="1.4"><header srclang="en-US" datatype="plaintext"/><body>
<tu><tuv xml:lang="en-US"><seg>a <bpt i="1">&lt;b></bpt>hat<ept i="1">&lt;/b></ept></seg></tuv>
<tuv xml:lang="de"><seg>ein Hut</seg></tuv></tu>
<tu><tuv xml:lang="de"><seg>zwei</seg></tuv><tuv xml:lang="en"><seg>two</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>alone</seg></tuv></tu></body></tmx>"""


@pytest.mark.parametrize(
    ("name", "content", "pairs"),
    [
        ("a.po", PO.replace('msgstr[0] ""', 'msgstr[0] "%d Hut\\n"').replace('msgstr[1] ""', 'msgstr[1] "%d Hüte\\n"'),
         [("done", "fertig"), ("%d hat", "%d Hut"), ("%d hats here", "%d Hüte")]),
        ("a.xlf", XLIFF, [("done", "fertig")]),
        ("a.tmx", TMX, [("a hat", "ein Hut"), ("two", "zwei")]),
    ],
)  # fmt: skip
def test_translation_memories_are_training_text(name, content, pairs, tmp_path):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    assert list(Corpus.from_files([path])) == pairs


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-16-le", "utf-8-sig", "utf-8", "iso-8859-1"])
@pytest.mark.parametrize("ending", [".tmx", ".tmx.gz"])
def test_a_memory_may_have_any_encoding_and_be_compressed(encoding, ending, tmp_path):
    """Guards against places in another encoding than the one that is read, as many tools write UTF-16."""
    declared = TMX.replace('"1.0"?', f'"1.0" encoding="{encoding.removesuffix("-sig")}"?').replace("Hut", "grüner Hut")
    content = (codecs.BOM_UTF16_BE if encoding == "utf-16-be" else b"") + declared.encode(encoding)
    path, written = tmp_path / f"a{ending}", gzip.compress if ending.endswith("gz") else bytes
    path.write_bytes(written(content))
    assert list(Corpus.from_files([path])) == [("a hat", "ein grüner Hut"), ("two", "zwei")]
    path.write_bytes(written(b"\xff" + declared.encode("utf-8")))
    with pytest.raises(InputError, match="cannot be read as utf-8, its encoding"):
        list(Corpus.from_files([path]))


def test_a_memory_without_its_source_language_is_refused(tmp_path):
    path = tmp_path / "a.tmx"
    path.write_text(TMX.replace('srclang="en-US"', 'srclang="fr"'))
    with pytest.raises(InputError, match=r"a.tmx has no pairs: its sources are in 'fr', and its texts in de, en, "):
        list(Corpus.from_files([path]))


@pytest.mark.parametrize("name", ["a.tsv", "a.po", "a.tmx.gz"])
def test_a_file_with_both_sides_stands_alone(name, tmp_path):
    """Guards against lines of two columns that are read as sources."""
    for each in (name, "b.en"):
        (tmp_path / each).write_text("a\tb\n")
    for paths in ([name, "b.en"], ["b.en", name]):
        with pytest.raises(InputError, match=f"{name} has both sides of a text: give it alone"):
            Corpus.from_files([tmp_path / each for each in paths])


@pytest.mark.parametrize(("name", "content"), [("a.tmx", TMX), ("a.xlf", XLIFF)])
def test_a_memory_is_examined_as_a_training_reads_it(name, content, tmp_path, cli):
    """Its pairs are its rows, not its lines; it is mended by the program that wrote it."""
    (tmp_path / name).write_text(content, encoding="utf-8")
    rows = Rows.of_config(DataConfig(train=(str(tmp_path / name),)), "pairs")["train"]
    assert list(rows) == list(Corpus.from_files([tmp_path / name]))
    report = json.loads(cli("doctor", name, "--json").stdout)
    assert report["rows"] == len(list(rows))
    refused = cli("doctor", name, "--fix", "out")
    assert refused.returncode == 2
    assert b"cannot be rewritten: correct it there" in refused.stderr


@pytest.mark.parametrize(
    ("first", "unit", "pairs"),
    [
        ("en-US", {"en-US": "color", "en-GB": "colour", "de": "Farbe"}, [("color", "Farbe"), ("colour", "Farbe")]),
        ("pt-BR", {"pt-BR": "ônibus", "pt_PT": "autocarro"}, [("ônibus", "autocarro")]),
        ("en", {"en_US": "color", "de-DE": "Farbe"}, [("color", "Farbe")]),
        ("en", {"en": "<![CDATA[a < b]]> hat", "de": "ein <![CDATA[Hut]]>"}, [("a < b hat", "ein Hut")]),
        ("zh", {"zh": '点击<bpt i="1">b</bpt>确定<ept i="1"/>按钮。', "en": 'w<bpt i="1"/>or<ept i="1"/>d'},
         [("点击确定按钮。", "word")]),
    ],
)  # fmt: skip
def test_regions_sections_and_codes_in_a_memory(first, unit, pairs, tmp_path):
    texts = "".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in unit.items())
    path = tmp_path / "a.tmx"
    path.write_text(f'<tmx><header srclang="{first}"/><body><tu>{texts}</tu></body></tmx>', encoding="utf-8")
    assert list(Corpus.from_files([path])) == pairs


def test_sections_of_character_data_are_text_in_xliff():
    xliff = '<xliff version="1.2"><trans-unit id="1"><source>a hat</source><target><![CDATA[ein <Hut]]></target>'
    xliff += '</trans-unit><trans-unit id="2"><source><![CDATA[a & b hat]]></source></trans-unit></xliff>'
    result = through(xliff, "a.xlf", str.upper)
    assert "<target><![CDATA[ein <Hut]]></target>" in result
    assert "<target>A &amp; B HAT</target>" in result


def test_a_memory_of_three_languages_is_refused(tmp_path):
    path = tmp_path / "a.tmx"
    path.write_text(TMX.replace("</seg></tuv></tu></body>", '</seg></tuv><tuv xml:lang="fr"><seg>x</seg></tuv>'
                    '<tuv xml:lang="de"><seg>y</seg></tuv></tu></body>'))  # fmt: skip
    with pytest.raises(InputError, match=r"a.tmx has more than two languages \(en, fr, de\)"):
        list(Corpus.from_files([path]))


def word_file_of(body, styles=""):
    """Return a Word file with some paragraphs and more styles, as bytes."""
    whole, changed = io.BytesIO(), io.BytesIO()
    docx.Document().save(whole)
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(changed, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name == "word/document.xml":
                content = content.replace(b"<w:body>", b"<w:body>" + body.encode())
            elif name == "word/styles.xml":
                content = content.replace(b"</w:styles>", styles.encode() + b"</w:styles>")
            target.writestr(name, content)
    return changed.getvalue()


def test_formulas_and_footnotes_of_word_stay_where_they_are():
    formula = '<m:oMath xmlns:m="http://math"><m:r><m:t>a=b</m:t></m:r></m:oMath>'
    footnote = '<w:r><w:footnoteReference w:id="2"/></w:r>'
    body = (
        f"<w:p><w:r><w:t>the law</w:t></w:r>{formula}<w:r><w:t>is right</w:t></w:r>{footnote}"
        "<w:r><w:t>and old</w:t></w:r></w:p><w:p><w:r><w:t>one</w:t><w:noBreakHyphen/><w:t>two</w:t></w:r></w:p>"
    )
    with zipfile.ZipFile(io.BytesIO(through(word_file_of(body), "a.docx"))) as archive:
        written = archive.read("word/document.xml").decode()
    expected = body.replace("<w:t>two</w:t>", "<w:t></w:t>").replace("<w:noBreakHyphen/>", "<w:t></w:t>")
    for text, result in (
        ("the law", "THE LAW"),
        ("is right", "IS RIGHT"),
        ("and old", "AND OLD"),
        ("one", "ONE\u2011TWO"),
    ):
        expected = expected.replace(f"<w:t>{text}<", f"<w:t>{result}<")
    assert expected.replace("<w:t>", '<w:t xml:space="preserve">') in written


def test_front_matter_and_unusual_line_ends_of_markdown():
    front = "---\r\ntitle: my cat\r\n---\r\n"
    assert through(f"{front}a hat\r\n", "a.md") == f"{front}A HAT\r\n"
    assert through("a\u2028b\n\na hat\x0c here\n\r# two\r", "a.md") == "A B\n\nA HAT HERE\n\r# TWO\r"


def test_a_prefix_of_xliff_is_kept():
    content = (
        '<x:xliff xmlns:x="u" version="1.2"><x:trans-unit id="1"><x:source>a hat</x:source>'
        '<x:target state="new"/></x:trans-unit><x:trans-unit id="2"><x:source>two</x:source></x:trans-unit></x:xliff>'
    )
    written = through(content, "a.xlf")
    etree.fromstring(written)
    assert '<x:target state="new">A HAT</x:target>' in written
    assert "<x:target>TWO</x:target>" in written


@pytest.mark.parametrize("head", [
    '<meta charset="iso-8859-1">', '<meta http-equiv="Content-Type" content="text/html; charset=windows-1252">',
    '<?xml version="1.0" encoding="latin1"?>',
])  # fmt: skip
def test_html_is_written_in_the_encoding_that_it_declares(head):
    document = read_document(f"{head}<p>ein Männerhut".encode("latin-1"), "a.html", PLAIN)
    assert [text.text for text in document.texts] == ["ein Männerhut"]
    assert document.written(["für 5 € 日"]) == f"{head}<p>für 5 € 日".encode("cp1252", "xmlcharrefreplace")


@pytest.mark.parametrize("head", [
    '\ufeff<meta charset="iso-8859-1">', '<meta name="description" content="the charset = foo">',
    '<!-- <meta charset="iso-8859-1"> --><meta charset="utf-8">', '<meta charset="utf-16">', "",
])  # fmt: skip
def test_html_is_utf8_as_browsers_see_it(head):
    content = f"{head}<p>ein Männerhut".encode()
    document = read_document(content, "a.html", PLAIN)
    assert [text.text for text in document.texts] == ["ein Männerhut"]
    assert document.written(["ein Männerhut"]) == content


@pytest.mark.parametrize("label", ["x-none", "base64", "undefined"])
def test_html_of_no_encoding_is_refused(label):
    with pytest.raises(InputError, match=f"declares the encoding {label}, which is not known"):
        read_document(f'<meta charset="{label}"><p>a hat'.encode(), "a.html", PLAIN)
    with pytest.raises(InputError, match="not UTF-8"):
        read_document("<p>Männer".encode("latin-1"), "a.html", PLAIN)


def test_only_marked_elements_are_hidden():
    page = '<p class="x-notranslate-y">a <a href="/notranslate-faq">hat</a></p><p class="b notranslate">two</p>'
    assert through(page, "a.html") == page.replace("a <a", "A <a").replace(">hat", ">HAT")


UNTOUCHED = {
    "code that holds tags": ("a.md", "the hat `<br>` and `List<String>` and ``a`b``\n"),
    "code in two backticks": ("a.md", "use `x_y` or ``a`` and ``b`` here\n"),
    "expressions with delimiters": ("a.md", 'a {{ name | default("[no name]") }} and {{ _name }} hat\n'),
    "an address with underscores": ("a.md", "see https://example.org/__init__.py now, and <http://x.org>.\n"),
    "a link with a tag within": ("a.md", "[a <b>red</b> hat](http://a.b/c) here, *a<br>b* ***bold*** x\n"),
    "footnotes and tasks": ("a.md", "- [ ] a hat[^1]\n- [x] two\n\n[^1]: red ones\n"),
    "a byte order mark": ("a.md", "\ufeff# a hat\n\ntwo\n"),
    "a number after a mark": ("a.md", "2. 2 hats\n3. hats\n"),
    "numbers alone": ("a.html", "<td>5</td><td>1.234,56</td><td>hat</td>"),
    "powers and footnotes": ("a.html", "<p>2<sup>31</sup> hats.<sup>1</sup> two</p>"),
    "a tag in code": ("a.html", "<p>a <code>List<String> x = y</code> hat</p>"),
    "times and classes": (
        "a.vtt",
        "WEBVTT\n\n00:00:05.000 --> 00:00:06.000\na <00:00:05.500>red <00:00:05.800>hat\n\n"
        "00:00:07.000 --> 00:00:08.000\n<v.loud Ann>a <c.yellow>hat</c></v>\n\n"
        "00:00:09.000 --> 00:00:10.000\n<v Fred>two\n",
    ),
    "breaks in cues": ("a.srt", "1\n00:00:15,000 --> 00:00:16,000\none <br/> two <br> three\n"),
    "cues with nothing between": (
        "a.vtt", "WEBVTT\n\n00:01.000 --> 00:02.000\na hat\n00:03.000 --> 00:04.000\ntwo\n"
    ),
    "adjoining emphasis": ("a.md", "**bold *it*** end *it **bold*** and ***bold** it* and __a _b___ end\n"),
    "three marks for both": ("a.md", "***all*** of **bold *it*** here\n"),
    "an icon of a private font": ("a.md", "icon \U000f0000 and `a<b>` and `c<d>` \U000f0001\n"),
    "a byte order mark of PO": ("a.po", '\ufeffmsgid "a hat"\nmsgstr ""\n'),
    "a mark at the beginning": ("a.html", "<p><sup>1</sup> Note text</p>"),
    "cues without a blank line": (
        "a.srt", "8\n00:00:15,000 --> 00:00:16,000\na hat\n9\n00:00:17,000 --> 00:00:18,000\n{\\an8}two\n"
    ),
    "an entry without a header": ("a.po", 'msgid "a hat"\nmsgstr ""\n\nmsgid "two"\nmsgstr ""\n'),
    "entries without blank lines": (
        "a.po", 'msgid ""\nmsgstr "Language: de\\n"\nmsgid "a hat"\nmsgstr ""\nmsgid "two"\nmsgstr "zwei"\n'
        'msgid "red"\nmsgstr ""\n',
    ),
    "spaces around a segment": (
        "a.xlf", '<xliff version="1.2"><trans-unit id="1"><source>a hat: </source><target/></trans-unit></xliff>'
    ),
    "what is protected": (
        "a.xlf", '<xliff version="1.2"><trans-unit id="1"><source>a <mrk mtype="protected">Foo</mrk> hat</source>'
        '<target></target></trans-unit></xliff>',
    ),
    "segments of a source": (
        "a.xlf", '<xliff version="1.2"><trans-unit id="1"><source>a. b.</source><seg-source><mrk mid="1">a hat.</mrk> '
        '<mrk mid="2">two.</mrk></seg-source><target><mrk mid="1"></mrk></target></trans-unit></xliff>',
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNTOUCHED)
def test_a_translator_that_copies_changes_nothing_else(case):
    """Documents as people write them: every tag, space, address and number is where it was."""
    name, content = UNTOUCHED[case]
    expected = content
    if name == "a.po":
        expected = re.sub(r'msgid "(.+)"\nmsgstr ""', r'msgid "\1"\nmsgstr "\1"', content)
    elif name == "a.xlf":
        source = re.search("<(source|seg-source)>((?:(?!<source|<seg-source).)*)</\\1>(?=<target)", content)[2]
        expected = re.sub("<target.*?(/>|</target>)", f"<target>{source}</target>", content)
    assert through(content, name, str) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<h3>a hat</h3><p>two</p>", "<h3>A HAT</h3> <p>TWO</p>"),  # no word of both
        ("<a>hats</a><span>caps</span>", "<a>HATS</a> <span>CAPS</span>"),
        ("un<b>believ</b>able", "<b>UNBELIEVABLE</b>"),
        ("<li>'<i>red hat</i>'</li><li>two</li>", "<li>'<i>RED HAT</i>'</li> <li>TWO</li>"),
    ],
)
def test_tags_between_letters(source, expected):
    entry = f'msgid "{source}"\nmsgstr ""\n'
    assert through(entry, "a.po") == entry.replace('msgstr ""', f'msgstr "{expected}"')


def test_deletions_and_comments_do_not_cut_sentences():
    run = "<w:r><w:t xml:space='preserve'>{}</w:t></w:r>"
    body = f"<w:p>{run.format('I like')}<w:r><w:commentReference w:id='1'/></w:r>{run.format(' hats')}</w:p>"
    assert [text.text for text in read_document(word_file_of(body), "a.docx", PLAIN).texts] == ["I like hats"]


def test_elements_of_xliff_may_stand_within_words():
    source = 'click<g id="1">ing</g> the <g id="2">word</g>s'
    content = f'<xliff version="1.2"><trans-unit id="1"><source>{source}</source></trans-unit></xliff>'
    assert [text.text for text in read_document(content.encode(), "a.xlf", PLAIN).texts] == ["clicking the words"]


def test_links_by_reference_keep_their_labels():
    content = "a [hat][] and [Red Cap] and `[hat]`\n\n[hat]: http://a\n[red cap]: http://b\n"
    assert through(content, "a.md").startswith("A [HAT][hat] AND [RED CAP][Red Cap] AND `[hat]`\n")


def test_parts_of_word_files_stay_apart():
    """Links, tracked changes, fields and bookmarks hold their own words, and spaces beside them stay."""

    def run(text):
        return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'

    paragraphs = [
        f'{run("a ")}<w:hyperlink r:id="rId9">{run("red")}</w:hyperlink>{run(" hat")}',
        f'{run("page ")}<w:fldSimple w:instr="PAGE">{run("1")}</w:fldSimple>{run(" of two")}',
        f'{run("he ")}<w:ins w:id="1">{run("often")}</w:ins>{run(" said")}',
        f'{run("I ")}<w:del w:id="2"><w:r><w:delText>really</w:delText></w:r></w:del>{run("like the hat")}',
        f'{run("one ")}<w:bookmarkStart w:id="3"/>{run("two")}<w:bookmarkEnd w:id="3"/>',
        f"{run('hats ')}<w:r><w:tab/></w:r>{run('&quot;caps&quot; &#8217;s &amp; more')}",
    ]
    body = "".join(f"<w:p>{one}</w:p>" for one in paragraphs)
    with zipfile.ZipFile(io.BytesIO(through(word_file_of(body), "a.docx", str))) as archive:
        written = archive.read("word/document.xml").decode()
    assert body.replace("&quot;", '"').replace("&#8217;", "\u2019") in written


def test_terms_are_escaped_where_their_text_is():
    document = read_document(b"<p>the woman sleeps</p>", "a.html", PLAIN)
    text = Glossary({"woman": "R&D <woman>"}).marked(document.texts[0])
    line = MarkedLine(text, Pieces([text.text], [], []), PLAIN)
    assert line.restored(["the R&D <woman> sleeps"], []) == "the R&amp;D &lt;woman&gt; sleeps"


def test_terms_match_in_any_unicode_form():
    for term, text in (("Ma\u0308dchen", "ein M\u00e4dchen"), ("M\u00e4dchen", "ein Ma\u0308dchen")):
        assert [found[2] for found in Glossary({term: "girl"}).occurrences(text)] == ["girl"]


def test_a_table_is_scored_with_more_references(tmp_path, config):
    (tmp_path / "a.tsv").write_text("a\tb\nc\td\n")
    (tmp_path / "more.en").write_text("e\nf\n")
    corpus = find_task("translate").open_scored_text(config, [str(tmp_path / "a.tsv"), str(tmp_path / "more.en")])
    assert [tuple(row) for row in corpus] == [("a", "b", "e"), ("c", "d", "f")]


@pytest.mark.parametrize(
    ("line", "result"),
    [
        ("[ein Buch](a_b.md 'der Titel') hier", "[EIN BUCH](a_b.md 'der Titel') HIER"),
        ('[ein Buch](a.md "ein \\"Titel\\"") hier', '[EIN BUCH](a.md "ein \\"Titel\\"") HIER'),
        ("[ein Buch](a.md (der Titel)) hier", "[EIN BUCH](a.md (der Titel)) HIER"),
        ("ein ![Hut](<das bild.png>) hier", "EIN ![HUT](<das bild.png>) HIER"),
        ("[ein Buch](a(b(c)).md) hier", "[EIN BUCH](a(b(c)).md) HIER"),
        ("drück <kbd>Alt</kbd> und <code>ein x</code> hier", "DRÜCK <kbd>Alt</kbd> UND <code>ein x</code> HIER"),
        ("+++\ntitle = 'ein Hut'\n+++\nein Hut\n", "+++\ntitle = 'ein Hut'\n+++\nEIN HUT\n"),
        ("---\na: ein Hut\n...\nein Hut\n", "---\na: ein Hut\n...\nEIN HUT\n"),
        ("| a |\n|---|\n| ein Hut \\| Rock |\n| Rock |\n", "| A |\n|---|\n| ein Hut \\| Rock |\n| ROCK |\n"),
        ("{% block content %} ein Hut", "{% block content %} EIN HUT"),
    ],
)
def test_forms_of_markdown_that_people_write(line, result):
    assert through(line, "a.md") == result


@pytest.mark.parametrize(
    ("rule", "forms"),
    [
        ("nplurals=1; plural=0", {0: "%D HÜTE"}),
        ("nplurals=2; plural=(n != 1)", {0: "EIN HUT", 1: "%D HÜTE"}),
        ("nplurals=3; plural=(n==0 ? 0 : n==1 ? 1 : 2)", {0: "%D HÜTE", 1: "EIN HUT", 2: "%D HÜTE"}),
    ],
)
def test_each_plural_form_gets_the_source_of_its_numbers(rule, forms):
    """A language with one form uses it for all numbers: a text without the number would be wrong."""
    empty = "".join(f'msgstr[{form}] ""\n' for form in forms)
    content = f'msgid ""\nmsgstr "Plural-Forms: {rule};\\n"\n\nmsgid "ein Hut"\nmsgid_plural "%d Hüte"\n{empty}'
    [entry] = polib.pofile(through(content, "a.po").replace("%d", "%D"))
    assert entry.msgstr_plural == forms


def test_xliff_keeps_the_encoding_that_it_declares():
    xliff = '<?xml version="1.0" encoding="ISO-8859-1"?><xliff version="1.2"><file><body><trans-unit id="1">'
    xliff += "<source>ein haus</source></trans-unit></body></file></xliff>"
    result = through(xliff, "a.xlf", lambda text: text.replace("haus", "Häuschen €"))
    assert etree.fromstring(result.encode("latin-1")).find(".//target").text == "ein Häuschen €"

    with pytest.raises(InputError, match=r"a.xlf declares an encoding that does not exist: .*foo-1"):
        through(xliff.replace("ISO-8859-1", "foo-1"), "a.xlf")


def test_the_state_of_an_xliff_2_segment_counts():
    xliff = '<xliff version="2.0"><file id="f"><unit id="1"><segment state="{}"><source>ein Hut</source>'
    xliff += "<target>ein Hut</target></segment></unit></file></xliff>"
    assert "<target>EIN HUT</target>" in through(xliff.format("initial"), "a.xlf")
    assert "<target>ein Hut</target>" in through(xliff.format("translated"), "a.xlf")


def test_messages_with_plural_forms_are_translated_branch_by_branch():
    message = '{N, plural, =0 {} one {a hat <x id="1"/>} other {# hats <x id="1"/>}} now'
    result = '{N, plural, =0 {NOW} one {A HAT <x id="1"/> NOW} other {# HATS <x id="1"/> NOW}}'
    xliff = f'<xliff version="1.2"><trans-unit id="1"><source>{message}</source></trans-unit></xliff>'
    assert f"<target>{result}</target>" in through(xliff, "a.xlf", str.upper)
    entities = "{n, plural, =0 {} one {it&#39;s # hat &#8226;} other {&apos;{x}&apos;}}"
    written = through(xliff.replace(message, entities), "a.xlf", str.upper)
    assert (
        "<target>{n, plural, =0 {} one {IT'S # HAT \u2022} other {&apos;{x}&apos;}}" in written
        or "<target>" not in written
    )
    po = 'msgid "{n, plural,\\n other {# hats}}"\nmsgstr ""\n\nmsgid "a\\nb"\nmsgstr ""\n'
    assert 'msgstr "{n, plural,\\n other {# HATS}}"' in (written := through(po, "a.po", str.upper))
    assert written.endswith('msgstr "A\\nB"\n')


@pytest.mark.parametrize(("declared", "prefix"), [("xmlns:ns0", "ns0:"), ("xmlns", "")])
def test_word_files_with_another_prefix_stay_well_formed(declared, prefix):
    stream = io.BytesIO()
    docx.Document().save(stream)
    space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    body = f"<{prefix}body><{prefix}p><{prefix}r><{prefix}t>ein Hut</{prefix}t></{prefix}r></{prefix}p></{prefix}body>"
    with zipfile.ZipFile(stream) as archive:
        files = {info.filename: archive.read(info) for info in archive.infolist()}
    files["word/document.xml"] = f'<{prefix}document {declared}="{space}">{body}</{prefix}document>'.encode()
    changed = io.BytesIO()
    with zipfile.ZipFile(changed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    result = docx.Document(io.BytesIO(through(changed.getvalue(), "a.docx")))
    assert [paragraph.text for paragraph in result.paragraphs] == ["EIN HUT"]


def test_many_small_parts_are_a_bomb_too():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(210):
            archive.writestr(f"word/media/{number}.bin", bytes(1_000_000))
        archive.writestr("word/document.xml", "<w:document/>")
    with pytest.raises(InputError, match=r"^a\.docx unpacks to far more than its size"):
        through(stream.getvalue(), "a.docx")


def test_spaces_that_do_not_break_stay():
    assert through("<p>noch 5&nbsp;Hüte : ja</p>", "a.html") == "<p>NOCH 5\u00a0HÜTE : JA</p>"


@pytest.mark.parametrize(
    "text", ["%" + "0" * 20_000, "1" * 20_000, "a." * 10_000, "[x](" + "a" * 20_000, "<b>" * 8000 + "x" + "</b>" * 8000]
)
def test_long_texts_are_read_in_linear_time(text):
    """Within the time limit of a test; each took minutes, or half a minute."""
    for name in ("a.md", "a.html"):
        read_document(text.encode(), name, PLAIN)


def test_a_tag_is_not_cut_between_lines():
    text = '<font face="Arial Black">a man walks in the park</font> and a <i>dog</i>'
    first, second = wrapped(text, 2)
    assert f"{first} {second}" == text
    assert first == '<font face="Arial Black">a man walks in'
