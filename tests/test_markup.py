"""Markup in lines: taken out before a model reads them, and put back exactly once, well-formed."""

import dataclasses
import json
import re

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from heedful import workflows
from heedful.cli import main
from heedful.config import Config
from heedful.config.protected import SLOTS, Protection
from heedful.core.errors import InputError
from heedful.data.markup.aligned_text import AlignedText
from heedful.data.markup.forms import partners, tags_of
from heedful.data.markup.html_tokens import html_tokens
from heedful.data.markup.inline_terms import TERM, with_terms
from heedful.data.markup.marked_text import marked
from heedful.data.markup.messages import message_pieces
from heedful.data.markup.protected_pairs import protected_pair
from heedful.data.markup.words import words_of
from heedful.data.sentences import Pieces
from heedful.data.word_alignment import aligned_both_ways
from heedful.inference.aligner import FILE, Aligner, AlignmentHeads, best_heads, choose_heads, links_of, stored_heads
from heedful.inference.marked_line import MarkedLine, whole_slots
from heedful.inference.translator import Translator
from heedful.runs.run import Run
from heedful.tasks.translation_data import with_markup_tokens
from tests.conftest import PAIRS, change, quiet, write_recipe

pytestmark = pytest.mark.any_backend

PLAIN, ALL = Protection(), Protection(["all"])


def spans(text, protection=PLAIN):
    return [text[span.start : span.end] for span in protection.spans(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see https://a.b/c?d=e#f, or www.a.org.", ["https://a.b/c?d=e#f", "www.a.org"]),
        ("write to a.b+c@d-e.org now", ["a.b+c@d-e.org"]),
        ("{name}, {0}, {{x y}}, ${HOME}, %{count}", ["{name}", "{0}", "{{x y}}", "${HOME}", "%{count}"]),
        ("open [X12X] now", ["[X12X]"]),
        ("%s %d%% of %(n)d, %1$s %-5.2f %lu %1 %L2", ["%s", "%d", "%%", "%(n)d", "%1$s", "%-5.2f", "%lu", "%1", "%L2"]),
        ("$HOME costs $5", ["$HOME"]),
        ("5 km, 1,000.5 MB, 20%, 30 °C", ["5 km", "1,000.5 MB", "20%", "30 °C"]),
        ("100 %ige Lösung, 5 Kinder, 7 men", []),
        ("filemode (0%.3o), 5%1$s, 5%(n)d, 100%-ige, 5%.", ["%.3o", "%1$s", "%(n)d", "100%", "5%"]),
        ("`a b` and &amp;", ["`a b`", "&amp;"]),
        ("no { braces } and a, b; 100% sure", ["100%"]),
        ("\u27e61\u27e7 in a text", ["\u27e61\u27e7"]),
        ("{0, number} on { d , date, short}, {a, b}", ["{0, number}", "{ d , date, short}"]),
        ("{n, plural, one {{g, select, x {{a}}}} other {b}} c", ["{n, plural, one {{g, select, x {{a}}}} other {b}}"]),
        (r"one\nTwo, \u00e4, C:\new\text, $a \times b$, a\b", [r"\n", r"\u00e4", r"C:\new\text", "$a"]),
    ],
)
def test_protected_spans(text, expected):
    assert spans(text) == expected


def test_patterns_of_ones_own_come_first():
    protection = Protection([r"[A-Z]{2,}-\d+", "url"])
    assert spans("HEED-12 at {x}", protection) == ["HEED-12", "{x}"]
    assert protection.numbered_kinds == {"own", "url"}


@pytest.mark.parametrize("pattern", ["urls", "printfs", "brace"])
def test_a_misspelt_kind_is_no_pattern(pattern):
    with pytest.raises(InputError, match=rf"data\.protected: '{pattern}' is no kind of span: did you mean"):
        Protection([pattern])


@pytest.mark.parametrize("pattern", ["(", ".*", r"\w+", "a*", "[a-z ]+"])
def test_a_pattern_that_does_not_compile_or_matches_anything_is_refused(pattern):
    with pytest.raises(InputError, match=r"data\.protected: "):
        Protection([pattern])


@pytest.mark.parametrize(
    ("message", "sentences"),
    [
        ("{n, plural, one {# file} other {# files}} left", ["{#} file left", "{#} files left"]),
        ("you{n, plural,offset:1 =0{} other{ and # others}}", ["you", "you and {#} others"]),
        (
            "{n, plural, one {a cat} other {# cats}}, {m, plural, other {# dogs}}",
            ["a cat, {#} dogs", "{n, number} cats, {#} dogs"],
        ),
        (
            "{g, select, male {He has {n, plural, one {one} other {#}}} other {They don''t}}",
            ["He has one", "He has {#}", "They don't"],
        ),
        (
            '<b title="{n, plural, other {x}}">{n, selectordinal, other {#th}}</b>',  # the attribute is not read
            ['<b title="{n, plural, other {x}}">{#}th</b>'],
        ),
        ("no {name}, {0, number}", None),
        ("{n, plural, one {a '{literal'} other {b}}", None),
        ("{n, plural, one {never closed} other", None),
        ("{a, select, other {" * 50 + "x" + "}}" * 50, None),
        ("{a, select, x {1} other {2}}" * 7, None),  # 128 sentences
    ],
)
def test_messages_have_a_sentence_for_each_branch(message, sentences):
    pieces = message_pieces(message)
    assert (pieces.texts if pieces else None) == sentences


@pytest.mark.parametrize(
    ("message", "translated", "expected"),
    [
        ("#1: {n, plural, other {# l}}", "l'{x} {#} d'{#} #1 '", "{n, plural, other {l''{x} # d''# '#'1 ''}}"),
        ("{n, select, other {l}} #1", "l'{x} #1 it's", "{n, select, other {l''{x} #1 it's}}"),
        ("{n, plural, other {# l}}", "{p, number, #,##0} {#}", "{n, plural, other {{p, number, #,##0} #}}"),
    ],
)
def test_translations_are_written_in_the_syntax_of_messages(message, translated, expected):
    assert message_pieces(message).join([translated]) == expected


def test_a_message_is_translated_branch_by_branch(whole):
    translator = Translator.from_run(whole)
    message = "{n, plural, one {o <b>gato</b> bebe} other {# gatos bebem}} leite"
    one, others = translator.translate(["o <b>gato</b> bebe leite", "{#} gatos bebem leite"])
    result = f"{{n, plural, one {{{one}}} other {{{others.replace('{#}', '#')}}}}}"
    assert translator.translate(message) == "".join(translator.stream_tokens(message)) == result
    pieces = translator.pieces(f"{message}\no gato")
    translations = [each[0].text for each in translator.translate_pieces(pieces.texts)]
    assert pieces.join(translations) == f"{result}\n{translator.translate('o gato')}"
    lines = translator.pieces(message.replace(" other", "\n other")).texts
    assert lines == translator.pieces(message).texts  # a message may have several lines
    [candidates] = translator.n_best([message], beam_size=2, n_best=2)  # each line has two, so it is kept
    assert all(candidate.text.count(message[:-6]) == 1 for candidate in candidates)


@given(st.text(alphabet="<>/ab=\"' !-&;{}0\n", max_size=80))
def test_tokens_of_html_are_its_characters(text):
    assert "".join(token.raw for token in html_tokens(text)) == text
    assert "".join(token.raw for token in tags_of(text)) == text


@pytest.mark.parametrize(
    ("text", "form", "plain"),
    [
        ("5 < 6 and 7 > 3", "tags", "5 < 6 and 7 > 3"),
        ("Click {0}here{/0}, {1}", "tags", "Click here, {1}"),
        ("one<br>two <img src='a>b'/> three", "tags", "one two three"),
        ("a <0>red <12>hat</12></0><3/>, 1 <4 >2", "tags", "a red hat, 1 <4 >2"),
        ("a *b* and **c [d](e_f)** snake_case * x", "markdown", "a b and c d snake_case * x"),
        ("a `*b*` \\*c\\*", "markdown", "a `*b*` \\*c\\*"),
        ("[![at https://a.b](https://c.d/e)](https://f.g)", "markdown", "at https://a.b"),
        ("set A__B__C and __d__", "markdown", "set A__B__C and d"),
        ("&lt;b&gt; &amp; <i>x\n  y</i>", "html", "<b> & x y"),
        ("a &lt;b class=&quot;c&quot;>red&lt;/b&gt; hat&lt;br/&gt; &lt; 5 &gt; 3", "xml", "a red hat < 5 > 3"),
        ("use <![CDATA[a <i>red</i> & hat]]>", "xml", "use a red & hat"),
    ],
)
def test_text_without_markup(text, form, plain):
    assert marked(text, form, PLAIN).text == plain


def test_tags_without_a_counterpart_are_kept_with_a_note():
    text = marked("a <b>b <i>c</b> d</u>", "tags", PLAIN)
    assert [slot.result for slot in text.slots] == ["<i>", "</u>"]
    assert text.notes == [
        "<i> has no counterpart: it is kept as text.", "</u> has no counterpart: it is kept as text.",
    ]  # fmt: skip


def test_the_beginning_of_a_long_address_stands_for_it():
    address = f"https://example.org/{'x' * 400}"
    text = marked(f"see {address} and go", "tags", PLAIN)
    assert len(text.text) < 50
    assert restored(f"see {address} and go", f"go to {text.text[4:28]} now") == f"go to {address} now"


def test_code_is_hidden_in_html_and_read_as_its_beginning():
    text = marked(
        "run <code>ls &amp; rm</code> in <span translate='no'>Foo</span> <x id='1'></x>", "html", PLAIN, ("x",)
    )
    assert text.text == "run ls & rm in Foo "
    assert [slot.result for slot in text.slots] == ["<code>ls &amp; rm</code>", "<span translate='no'>Foo</span>"]
    assert [tag.opening for tag in text.tags] == ["<x id='1'></x>"]


def restored(line, translation, matrix=None, protection=PLAIN, form="tags"):
    """Return the restored line; by default words are aligned in order."""
    text = marked(line, form, protection)
    result = MarkedLine(text, Pieces([text.text], [], []), protection)
    alignments = []
    for source, target in result.to_align([translation]):
        alignments.append(np.eye(len(target.words), len(source.words)) if matrix is None else matrix(source, target))
    return result.restored([translation], alignments)


@pytest.mark.parametrize(
    ("line", "translation", "expected"),
    [
        ("ein <b>roter</b> Hut", "a red hat", "a <b>red</b> hat"),
        ("<p>ein <b>roter</b> Hut</p>", "a red hat", "<p>a <b>red</b> hat</p>"),
        ("<a><b><i>ein</i> <i>Hut</i></b></a>", "a hat", "<a><b><i>a</i> <i>hat</i></b></a>"),
        ("ein Hut<br/><img>", "a hat", "a hat<br/><img>"),
        ("ein <a> <img></a> Hut", "a hat", "a <a> <img></a> hat"),
        ("<a>ein</a><wbr> <b><wbr>Hut<i></i></b>", "a hat", "<a>a</a><wbr> <b><wbr>hat<i></i></b>"),
        ("ein <br/> Hut", "a hat", "a <br/> hat"),
        ("ein<br/>Hut", "a hat", "a<br/>hat"),
        ("ein<br/> Hut", "a hat", "a<br/> hat"),
        ("ein Hut<br/>", "a hat", "a hat<br/>"),
        ("ein <i></i> Hut", "a hat", "a <i></i> hat"),
        ("nimm %s und %d", "take %s and %d", "take %s and %d"),
        ("nimm %s und %d", "take %d and %s", "take %d and %s"),
        ("nimm %s und %d", "take %s and 3", "take %s and %d"),  # what the model wrote is replaced
        ("nimm %s und", "take %s %s and", "take %s and"),  # one too many
        ("nimm {a} nun", "take {b} now", "take {a} now"),  # what it wrote of the same kind
        ("<b>nimm %s</b> nun", "take it now", "<b>take %s</b> now"),
        ("{0}ein{/0} Hut", "a hat", "{0}a{/0} hat"),
        ("der %s Hut", "the%shat", "the %s hat"),
        ("der %s-Hut", "the %s-hat", "the %s-hat"),
        ("xx%sxx", "xx%sxx", "xx%sxx"),
        ("nimm http://a.b/ nun", "take http://a.b/:now", "take http://a.b/ :now"),
        ("<b>ein</b> Hut", "a</b> hat <i>", "<b>a</b> hat"),  # tags of its own
    ],
)
def test_markup_goes_back(line, translation, expected):
    assert restored(line, translation) == expected


@pytest.mark.parametrize(
    ("line", "translation", "expected"),
    [
        ("nimm %(name)s nun", "take %(take %(name)s now", "take take %(name)s now"),
        ("nimm %(name)s nun", "take %(nam)s now", "take %(name)s now"),
        ("nimm %(name)s nun", "take %(nam s: now", "take %(name)s nam s: now"),
        ("nimm {a} nun", "take {a} {the now", "take {a} the now"),
        ("nimm `a b` nun", "take `a b` the `now", "take `a b` the now"),
        ("nimm %d (alle) nun", "take %d file(s) (all) now", "take %d file(s) (all) now"),
        ("nimm %<a b%> und <i> nun", "take %<a b%> and <i> now", "take %<a b%> and <i> now"),
        ("nimm %d Datei nun", "take %d file(s) now", "take %d file(s) now"),
        ("100% von %s", "100% of %s", "100% of %s"),
        ("fünfzig Prozent von %s", "50% of %s", "50% of %s"),
        ("fünf Dollar für $name", "$5 for $name", "$5 for $name"),
        ("<b>%s</b> Prozent", "%s % now", "<b>%s</b> % now"),
        ("nimm {a}, Menge", "take {a}, set {1, 2}", "take {a}, set {1, 2}"),
        ("nimm http://a.b/%20c nun", "take 5% http://a.b/%20c now", "take 5% http://a.b/%20c now"),
    ],
)  # fmt: skip
def test_what_is_left_of_a_span_goes_away(line, translation, expected):
    assert restored(line, translation) == expected


@pytest.mark.parametrize(
    ("line", "translation", "expected"),
    [
        ("ein Hut", "a *red* `hat [x] _y_ z_1 $5 a|b <c", r"a \*red\* \`hat \[x\] \_y\_ z_1 \$5 a\|b \<c"),
        ("ein * Hut", "a * hat*", "a * hat*"),
        (r"ein \*Hut\*", r"a \*hat\*", r"a \*hat\*"),
        ("der 1. Januar", "1. January", r"1\. January"),
        ("Hut", "- hat", r"\- hat"), ("Nr. 1", "# 1", r"\# 1"), ("Hut", ">hat", r"\>hat"), ("Hut", ". hat", ". hat"),
        ("Hut", "---", r"\---"), ("ein snake_case Hut", "a _hat_ snake_case", r"a \_hat\_ snake_case"),
        ("- Hut", "- hat", "- hat"), ("ein Hut", "1.5 hats", "1.5 hats"),
    ],
)  # fmt: skip
def test_what_a_model_writes_is_no_markdown(line, translation, expected):
    assert restored(line, translation, form="markdown") == expected


@pytest.mark.parametrize(
    ("line", "translation", "expected"),
    [
        ("ein &lt;b&gt;roter&lt;/b&gt; Hut", "a red hat", "a &lt;b&gt;red&lt;/b&gt; hat"),
        ("ein Hut&lt;br/&gt;", "a hat", "a hat&lt;br/&gt;"),
        ("ein &lt;i> Hut", "a <i> hat", "a &lt;i> hat"),  # without its counterpart
        ("<g id='1'>Ende &lt;/g&gt; da</g>", "end </g> there", "<g id='1'>end &lt;/g&gt; there</g>"),
        ("ein &lt;code&gt;a b&lt;/code&gt; Hut", "a a b hat", "a &lt;code&gt;a b&lt;/code&gt; hat"),
        ("Werte &lt;n und solche &gt;m", "values <n and such >m", "values &lt;n and such &gt;m"),
        ("&lt;a b=&quot;x &gt; y&quot;&gt;Hut&lt;/a&gt;", "hat", "&lt;a b=&quot;x &gt; y&quot;&gt;hat&lt;/a&gt;"),
        ("<g id='1'>ein &lt;a href=&quot;b&quot;&gt;Hut&lt;/a&gt;</g>", "a hat",
         "<g id='1'>a &lt;a href=&quot;b&quot;&gt;hat&lt;/a&gt;</g>"),
    ],
)  # fmt: skip
def test_tags_that_xml_has_as_text_go_back_as_text(line, translation, expected):
    assert restored(line, translation, form="xml") == expected


def test_what_a_model_writes_is_escaped_in_html():
    assert restored("1 &lt; <b>2</b>", "1 < 2", form="html") == "1 &lt; <b>2</b>"


@pytest.mark.parametrize(
    ("line", "translation", "rows", "expected"),
    [
        ("der <b>rote Hut</b>.", "the red, hat.", [0, 1, 1, 2, 2], "the <b>red, hat</b>."),
        ("der <b>Hut.</b>", "the hat.", [0, 1, 2], "the <b>hat.</b>"),
        ("<b>(rot) Hut</b> da", "there, (red) hat", [4, 0, 0, 1, 2, 3], "there, <b>(red) hat</b>"),
        ("der <b>(rote) Hut</b>", "the, (red) hat", [0, 1, 1, 2, 3, 4], "the, <b>(red) hat</b>"),
        ("der <b>...</b> Hut", "the ... hat", [0, 1, 2, 3, 4], "the <b>...</b> hat"),
    ],
)
def test_tags_around_words_are_not_around_punctuation(line, translation, rows, expected):
    """`rows`: for each word of the translation the one of the source that it belongs to."""
    assert restored(line, translation, lambda source, target: np.eye(len(source.words))[rows]) == expected


def test_a_tag_around_a_word_is_around_the_likeliest_word():
    rows = np.array([[0.8, 0.1, 0.1], [0.0, 1.0, 0.0], [0.3, 0.3, 0.4], [0.0, 0.0, 1.0]])
    assert restored("der <b>Hut</b>.", "the, hat.", lambda *_: rows) == "the, <b>hat</b>."


def test_tags_follow_the_order_of_the_translation():
    def crossed(source, target):
        return np.eye(len(source.words))[::-1]

    assert restored("<b>rot</b> <i>Hut</i>", "hat red", crossed) == "<i>hat</i> <b>red</b>"


@st.composite
def marked_lines(draw):
    """Lines of nested tags, lone tags, placeholders and words."""
    words = st.sampled_from(["rot", "Hut", "%s", "{x}", "<br/>", ",", "der"])

    def part(depth):
        pieces = []
        for _ in range(draw(st.integers(0, 3))):
            if depth < 3 and draw(st.booleans()):
                name = draw(st.sampled_from("bi"))
                pieces.append(f"<{name}>{part(depth + 1)}</{name}>")
            else:
                pieces.append(draw(words))
        return draw(st.sampled_from([" ", ""])).join(pieces)

    return part(0) + " Hut"


@given(
    marked_lines(),
    st.lists(st.sampled_from(["red", "hat", "%s", "{x}", "{y}", ".", "the"]), max_size=8),
    st.integers(0, 999),
)
def test_every_tag_and_placeholder_comes_back_once_and_well_formed(line, words, seed):
    random = np.random.default_rng(seed)

    def attention(source, target):
        matrix = random.random((len(target.words), len(source.words))) ** 4
        return matrix / matrix.sum(axis=1, keepdims=True)

    result = restored(line, " ".join(words), attention)
    tags = re.compile(r"</?\w+/?>")
    assert sorted(tags.findall(result)) == sorted(tags.findall(line))
    for placeholder in ("%s", "{x}", "{y}"):
        assert result.count(placeholder) == line.count(placeholder)
    tokens = html_tokens(result)
    assert len(partners(tokens)) == sum(token.kind in ("open", "close") for token in tokens)
    kept = [word for word in words if word in ("the", ".")]
    assert len(kept) >= len([word for word in words_of(result) if result[word.start : word.end] in ("the", ".")])


@pytest.mark.parametrize("part", [
    "%<", "%< ", "{%", "{{", "`a", "{a,plural,", "www.", "a@", "&#", "$", "\\u", "[X", "<",
])  # fmt: skip
def test_spans_of_long_texts_are_found_in_linear_time(part):
    """Guards a server: expressions whose time grows with the square of a text would take minutes."""
    assert len("".join(spans(part * 100_000))) <= len(part) * 100_000


def test_numbered_tokens_stand_for_spans():
    text = marked("nimm %s und {x}", "tags", ALL)
    line = MarkedLine(text, Pieces([text.text], [], []), ALL)
    assert line.texts == [f"nimm {SLOTS[0]} und {SLOTS[1]}"]
    translation = f"with {SLOTS[1]} take {SLOTS[0]}"
    assert line.to_align([translation]) == []
    assert line.restored([translation], []) == "with {x} take %s"


def test_borders_of_sentences_within_a_span_are_joined():
    text = marked("see a. b@c.de. End", "tags", Protection(["a. b"]))
    pieces = whole_slots(Pieces(["see a.", "b@c.de.", "End"], [" ", " "], []), text)
    assert (pieces.texts, pieces.gaps) == (["see a. b@c.de.", "End"], [" "])


def test_pairs_with_common_spans_get_numbered_tokens():
    assert protected_pair("nimm %s, {x}", "take {x}, %s", ALL) == (
        f"nimm {SLOTS[0]}, {SLOTS[1]}", f"take {SLOTS[1]}, {SLOTS[0]}",
    )  # fmt: skip
    assert protected_pair("nimm %s", "take", ALL) == ("nimm %s", "take")
    noisy = [protected_pair(f"Hut {n} in Rom", f"hat {n} in Rome", ALL, noise=True) for n in range(200)]
    changed = [pair for pair in noisy if SLOTS[0][0] in pair[0]]
    assert 20 < len(changed) < 60
    for source, target in changed:
        assert sorted(re.findall("\u27e6.\u27e7", source)) == sorted(re.findall("\u27e6.\u27e7", target))
    assert noisy == [protected_pair(f"Hut {n} in Rom", f"hat {n} in Rome", ALL, noise=True) for n in range(200)]


def test_word_statistics_align_words():
    pairs = [(source.split(), target.split()) for source, target in PAIRS]
    links = aligned_both_ways(pairs, 5)
    assert links[0] == {(0, 0), (1, 1), (2, 2)}
    assert aligned_both_ways([([], ["a"])], 1) == [set()]


def test_the_heads_that_agree_are_chosen():
    right, wrong = np.eye(3), np.roll(np.eye(3), 1, axis=0)
    every = [np.stack([np.stack([[wrong, wrong], [wrong, right]]), np.stack([[wrong, wrong], [wrong, wrong]])])] * 4
    heads = best_heads(every, [{(0, 0), (1, 1), (2, 2)}] * 4)
    assert heads.heads == ("2.2",)
    assert (heads.read_as, heads.agreement, heads.pairs) == ("output", 1.0, 4)
    assert heads.signature().startswith("heads:2.2|read:output|agreement:1.000|pairs:4|")
    assert links_of(right) == {(0, 0), (1, 1), (2, 2)}
    with pytest.raises(InputError, match="names heads that the model does not have"):
        AlignmentHeads(("9.9",)).indices(2, 2)


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), InputError("Missing text")])
def test_without_its_text_a_run_aligns_by_the_layer_before_the_last(whole, monkeypatch, error):
    """The text may be in a folder of somebody else."""

    def unreadable(config):
        raise error

    monkeypatch.setattr(whole.task, "find_corpora", unreadable)
    assert choose_heads(whole, None) == AlignmentHeads()


def test_attention_is_pooled_over_the_tokens_of_words(whole):
    translator = Translator.from_run(whole)
    aligner = Aligner(translator.model, translator.source_tokenizer, translator.target_tokenizer)
    pairs = [(AlignedText.of(source), AlignedText.of(target)) for source, target in PAIRS]
    matrices = aligner(pairs)
    for (source, target), matrix in zip(pairs, matrices, strict=True):
        assert matrix.shape == (len(target.words), len(source.words))
        np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-4)
    empty = AlignedText.of("")
    assert [matrix.shape for matrix in aligner([(pairs[0][0], empty), (empty, pairs[0][1])])] == [(0, 3), (3, 0)]
    # One by one, and beside others, it is the same.
    np.testing.assert_allclose(aligner(pairs[3:4])[0], matrices[3], atol=1e-5)


def test_a_line_with_markup_is_translated(whole, tmp_path):
    translator, said = Translator.from_run(whole), []
    plain = translator.translate("o gato bebe")
    [result] = translator.translate(["o <b>gato</b> bebe"], said.append)
    assert re.sub("</?b>", "", result) == plain
    assert result.count("<b>") == result.count("</b>") == 1
    assert (
        translator.translate("https://a.b/c") == "".join(translator.stream_tokens("https://a.b/c")) == "https://a.b/c"
    )
    assert translator.translate("o <b>gato bebe", said.append).count("<b>") == 1
    assert said == ["line 1: <b> has no counterpart: it is kept as text."]
    assert translator.translate("o gato {x} bebe").count("{x}") == 1
    assert "".join(translator.stream_tokens("o <b>gato</b> bebe")) == result
    assert translator.pieces("o <b>gato</b> bebe\no gato").join([plain, "x"]) == f"{result}\nx"
    assert [len(each) for each in translator.predict(["o <b>gato</b> bebe"], beam_size=3, n_best=2)] == [2]
    assert stored_heads(whole).pairs > 0


def test_heads_are_stored_with_a_run_and_can_be_damaged(whole, capsys, tmp_path):
    (whole.path / FILE).unlink(missing_ok=True)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    assert main(["align", str(whole.path), str(pairs)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(PAIRS)
    assert re.fullmatch(r"(\d+-\d+ ?)*", lines[0])
    table = json.loads((whole.path / FILE).read_text())
    assert main(["align", str(whole.path), str(pairs), "--choose", "--punctuation"]) == 0
    assert json.loads((whole.path / FILE).read_text()) == table
    pairs.write_text(f"{'o gato ' * 50}\ta cat\n")
    assert main(["align", str(whole.path), str(pairs)]) == 0
    assert "1 text had more than the" in capsys.readouterr().err
    (whole.path / FILE).write_text(json.dumps(table | {"heads": ["7.7"]}))
    assert main(["align", str(whole.path), str(pairs)]) == 2
    assert "names heads that the model does not have" in capsys.readouterr().err
    (whole.path / FILE).unlink()


def test_a_run_can_be_trained_to_carry_spans_and_terms(tmp_path):
    pairs = [(f"{source} %s", f"%s {target}") for source, target in PAIRS]
    config = Config.from_toml(write_recipe(tmp_path, pairs=pairs))
    config = change(config, "--data.protected", '["all"]', "--data.terms", "0.5", "--train.updates", "3")
    run = workflows.train(config, tmp_path / "run", quiet)
    assert run.source_tokenizer.lookup(SLOTS[0]) is not None
    assert run.source_tokenizer.lookup(TERM) is not None
    translator = Translator.from_run(Run.open(run.path))
    assert translator.translate("o gato %s {x}").count("%s") == 1
    source = with_terms("o gato", ["the dog"])
    assert translator.source_tokenizer.pieces(translator.source_tokenizer.encode(source)).count(TERM) == 1
    greedy = dataclasses.replace(run.config.decode, markup="none")
    assert isinstance(Translator.from_run(Run.open(run.path), greedy).translate("o gato %s"), str)


@pytest.mark.parametrize("text", ["<b>" * 1500 + "x" + "</b>" * 1500, "<i>a</i> " * 3000])
def test_text_of_endless_tags_is_kept(text):
    read = marked(text, "tags", PLAIN)
    assert read.wordless
    assert "it is kept as it is" in read.notes[0]


@pytest.mark.parametrize(
    ("source", "translation"),
    [
        ("items across hats by <code>hat</code> or <code>hats</code> here", "items across hats by hat or hats here"),
        ("a size_t <var>size</var> is", "a size_t size is"),
        ("<code>x</code> and x", "x and x"),
    ],
)
def test_code_is_found_where_it_stood_among_equal_words(source, translation):
    assert restored(source, translation, form="html") == source


def test_comparisons_in_code_are_no_tags():
    """Between two of them there seems to be a tag."""
    assert restored("<b>Use</b> `a<b` and `c>d`.", "Nimm `a<b` und `c>d`.") == "<b>Nimm</b> `a<b` und `c>d`."


def test_protected_spans_need_a_vocabulary_without_prefix_space(config):
    """It would put a space after each span, which the decoder keeps."""
    with_spans = change(config, "--data.protected", '["all"]', "--tokenizer.kind", "bpe")
    assert with_markup_tokens(with_spans).tokenizer.new_tokens
    with pytest.raises(InputError, match="prefix_space puts a space after each protected span"):
        with_markup_tokens(change(with_spans, "--tokenizer.prefix_space", "true"))


@pytest.mark.parametrize("part", ["<b ", '<a href="', "<!-- ", "<a b=c ", "<![CDATA["])
@pytest.mark.parametrize("form", ["tags", "html", "markdown", "xml"])
def test_tags_that_never_end_are_read_in_linear_time(part, form):
    """Guards a server: Python's parser looks for the end of each again, which would take minutes."""
    for text in (part * 40_000, part * 40_000 + ">"):
        marked(text, form, PLAIN)


def test_many_tags_that_are_never_closed_are_read_quickly():
    """Guards against a loop over all open tags at each end tag: a page of 1 MB would take minutes."""
    tokens = tags_of("<p>a<b>c</b>" * 60_000)
    paired = partners(tokens)
    assert len(paired) == 2 * 60_000
    assert all(tokens[one].name == tokens[other].name == "b" for one, other in paired.items())
