"""Glossaries: found in a source, and kept in its translation."""

import numpy as np
import pytest

from heedful.cli import main
from heedful.config.protected import Protection
from heedful.core.errors import InputError
from heedful.data.corpus import Corpus
from heedful.data.glossary import Glossary
from heedful.data.markup.inline_terms import TERM, terms_corpus
from heedful.data.markup.marked_text import marked
from heedful.data.sentences import Pieces
from heedful.inference.marked_line import MarkedLine
from heedful.inference.translator import Translator
from tests.conftest import PAIRS

pytestmark = pytest.mark.any_backend

TERMS = Glossary({"gato": "tomcat", "gato preto": "panther", "Vaca": "Cow"})


def test_terms_are_whole_words_and_the_longest():
    assert TERMS.occurrences("o gato e o gato  preto, Gato; gatos") == [
        (2, 6, "tomcat"), (11, 22, "panther"), (24, 28, "tomcat"),
    ]  # fmt: skip
    assert TERMS.occurrences("a vaca") == []  # another word than the name
    assert TERMS.occurrences("o gato preto") == [(2, 12, "panther")]


def test_terms_do_not_touch_what_is_protected():
    glossary = Glossary({"name": "Name", "a": "b"})
    text = glossary.marked(marked("a {name} name", "tags", Protection()))
    assert [(slot.result, slot.kind) for slot in text.slots] == [("b", "term"), ("{name}", "braces"), ("Name", "term")]


def test_kept_terms_are_counted():
    assert TERMS.kept("o gato e o gato", "the tomcats and a Tomcat") == (2, 2)
    assert TERMS.kept("o gato e o gato", "the tomcat and a cat") == (2, 1)
    assert TERMS.kept("o rei", "the king") == (0, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gato\ttomcat\ngato\tcat\n", r"terms.tsv, line 2: 'gato' comes twice"),
        ("gato\t\n", r"terms.tsv, line 1: expected a term, a tab and its translation"),
        ("gato\n", r"line 1: expected a term, a tab"),
        ("\n", r"terms.tsv has no terms"),
        ("a\tb\tc\n", r"line 1: expected a term, a tab"),
    ],
)
def test_a_bad_glossary_is_refused(text, message, tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        Glossary.read(path)


def test_terms_follow_a_source_for_a_model_that_learned_so():
    text = TERMS.marked(marked("o <b>gato</b> bebe %s", "tags", Protection()))
    line = MarkedLine(text, Pieces([text.text], [], []), Protection(), soft_terms=True)
    assert line.texts == [f"o gato bebe %s {TERM} tomcat"]
    [(source, _)] = line.to_align(["the tomcat drinks %s"])
    assert source.text == "o gato bebe %s"


@pytest.mark.parametrize(
    ("written", "result"),
    [
        ("das alte Haus", "das alte Haus"), ("die alten Häuser", "die alten Häuser"), ("Haus", "Haus"),
        ("das alte Heim", "das alte Haus"), ("das alte Hausen", "das alte Hausen"), ("der Hase", "der Haus"),
        ("die alte Haut", "die alte Haus"),
    ],
)  # fmt: skip
def test_a_model_that_reads_terms_may_inflect_them(written, result):
    """A term that it does not use in any form replaces what it wrote, here for the last word of the source."""
    text = Glossary({"casa": "Haus"}).marked(marked("a velha casa", "tags", Protection()))
    line = MarkedLine(text, Pieces([text.text], [], []), Protection(), soft_terms=True)
    pairs = line.to_align([written])
    assert bool(pairs) == (written != result)
    rows = [np.eye(3)[-len(target.words) :] for _, target in pairs]
    assert line.restored([written], rows) == result


def test_forms_of_terms_are_taken_once_and_stay():
    def restored(terms, source, written, rows):
        text = Glossary(terms).marked(marked(source, "tags", Protection()))
        line = MarkedLine(text, Pieces([text.text], [], []), Protection(), soft_terms=True)
        return line.restored([written], [np.eye(len(one.words))[rows] for one, _ in line.to_align([written])])

    assert restored({"gato": "cat", "perro": "hounds"}, "gato perro", "hound feline", [0, 0]) == "hound cat"
    terms = {"casas": "Häuser", "casa": "Haus"}
    assert restored(terms, "casas y casa", "Gebäude und Haus", [0, 1, 2]) == "Häuser und Haus"
    assert restored({"heroe": "hero"}, "heroe gana", "Her wins", [0, 1]) == "hero wins"


def test_training_pairs_get_terms_of_their_targets():
    corpus = Corpus.from_pairs(PAIRS, "pairs")
    with_terms = terms_corpus(corpus, 0.5)
    changed = [(pair, other) for pair, other in zip(PAIRS, with_terms, strict=True) if pair != other]
    assert 3 < len(changed) < 17
    for (source, target), (more, same) in changed:
        assert same == target
        terms = more.removeprefix(source).split(f" {TERM} ")[1:]
        assert terms
        assert all(term in target for term in terms)
    assert list(terms_corpus(corpus, 0.5)) == list(with_terms)
    assert terms_corpus(corpus, 0) is corpus
    assert with_terms.fingerprint != corpus.fingerprint


def test_a_translator_keeps_terms(whole, tmp_path, capsys):
    translator = Translator.from_run(whole)
    result = translator.translate(["o gato bebe"], glossary=Glossary({"gato": "tomcat"}))[0]
    assert "tomcat" in result
    path = tmp_path / "terms.tsv"
    path.write_text("gato\ttomcat\n")
    files = [tmp_path / "a.pt", tmp_path / "a.en"]
    for side, file in enumerate(files):
        file.write_text("".join(f"{pair[side]}\n" for pair in PAIRS))
    assert main(["evaluate", str(whole.path), *map(str, files), "--glossary", str(path)]) == 0
    assert "100.00% of " in capsys.readouterr().out
    with pytest.raises(InputError, match="A glossary cannot be used, since there are prefixes"):
        list(translator.predict_stream(["o gato"], prefixes=["the"], glossary=TERMS))
    with pytest.raises(InputError, match="markup = 'none'"):
        translator.translate("o gato", glossary=TERMS, markup="none")


@pytest.mark.parametrize(
    ("term", "text", "places"),
    [
        ("我的API", "我的API, 我的APIs", [0]),
        ("東京", "私は2020東京に行く", [6]), ("手机", "我的iPhone手机", [8]),
        ("API", "このAPIを使う", [2]),
        ("แมว", "ฉันรักแมวมาก", [6]), ("北京", "他去北京了", [2]),
        ("कम", "कमी नहीं, कम है", [10]), ("cafe", "cafe\u0301 und cafe", [10]),
        ("New York", "New Yorker in New York", [14]),
    ],
)  # fmt: skip
def test_where_a_word_ends_depends_on_its_script(term, text, places):
    """Scripts without spaces have words anywhere; vowel signs and accents belong to the word before them."""
    glossary = Glossary({term: term})
    assert [start for start, _, _ in glossary.occurrences(text)] == places
    assert glossary.kept(text, text) == (len(places), len(places))


def test_the_pattern_of_a_large_glossary_is_as_long_as_its_terms():
    """Guards against borders that are repeated for each term: 3,000 terms took 30 seconds to compile."""
    terms = [f"term{number}" if number % 2 else f"語{number}" for number in range(400)]
    sizes = [len(Glossary(dict.fromkeys(some, "x"))._pattern.pattern) for some in (terms[:200], terms)]
    assert sizes[1] - sizes[0] < 400 * 10
