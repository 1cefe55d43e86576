"""Lines of several sentences: split, translated one by one, and joined; nothing is dropped without a word."""

import dataclasses
from types import SimpleNamespace

import hypothesis.strategies as st
import pytest
from hypothesis import given

import heedful
from heedful import workflows
from heedful.config import Config
from heedful.core.errors import InputError
from heedful.data.sentences import Pieces, SentenceSplitter, pieces_of_text, sentences_of
from heedful.inference.translator import Translator
from heedful.interop.export.ctranslate2_search import ctranslate2_translator
from heedful.runs.run import Run
from tests.conftest import PAIRS, change, quiet, write_recipe

pytestmark = pytest.mark.any_backend

SENTENCES = ["o gato bebe.", "A vaca come.", "O rei vê a vaca!"]
LINE = "o gato bebe. A vaca come.  O rei vê a vaca!"


def words(texts):
    return [len(text.split()) for text in texts]


splitter = SentenceSplitter("pt", words, 6)


@pytest.mark.parametrize(
    ("line", "texts", "gaps"),
    [
        ("O gato bebe. A vaca come.  O rei vê.", ["O gato bebe.", "A vaca come.", "O rei vê."], [" ", "  "]),
        ("O Dr. Silva chegou às 3.30. Bem!", ["O Dr. Silva chegou às 3.30.", "Bem!"], [" "]),
        (" um gato ", [" um gato "], []),  # a single sentence is not touched
        ("", [""], []),
        ("um gato, dois gatos, três gatos e um cão", ["um gato, dois gatos,", "três gatos e um cão"], [" "]),
        ("um dois três quatro cinco seis sete", ["um dois três quatro cinco seis", "sete"], [" "]),
    ],
)
def test_a_line_is_split_into_sentences_and_long_ones_into_clauses(line, texts, gaps):
    pieces = splitter(line)
    assert (pieces.texts, pieces.gaps) == (texts, gaps)
    assert bool(pieces.notes) == (max(words([line])) > 6 and "." not in line)


@given(st.text("ab,;. \t!?。、é—", max_size=60))
def test_nothing_is_lost_and_no_piece_is_too_long(line):
    pieces = splitter(line)
    assert "".join(pieces.join(pieces.texts).split()) == "".join(line.split())
    assert len(pieces.texts) == 1 or max(words(pieces.texts)) <= 6


@pytest.mark.parametrize("language", ["fr", "en", "de", "ja", ""])
@pytest.mark.parametrize("space", ["\u00a0", "\u2009", "\u202f", "\u3000"])
def test_wide_spaces_before_full_stops_are_read(language, space):
    """The library fails at them: one line of a text would end the work."""
    line = f"Vitamine C{space}. Elle est bonne.{space}Oui{space}? Non."
    sentences = sentences_of(line, language)
    assert "".join(sentences) == line
    assert len(sentences) > 1


def test_a_line_that_the_library_cannot_read_is_one_sentence(monkeypatch):
    def failing(*_):
        raise Exception("byte index 3 is no boundary")  # as of a library in Rust

    monkeypatch.setattr("sentencex.segment", failing)
    assert sentences_of("Um gato. Um cão.", "pt") == ["Um gato. Um cão."]


def test_a_text_without_spaces_is_cut_too():
    characters = SentenceSplitter("zh", lambda texts: [len(text) for text in texts], 5)
    pieces = characters("一二三四五六七八九十")
    assert "".join(pieces.texts) == "一二三四五六七八九十"
    assert max(map(len, pieces.texts)) <= 5
    assert Pieces(["一。", "二。"], [""], []).join(["One.", "Two."]) == "One. Two."
    assert Pieces(["One.", "Two."], [" "], []).join(["一。", "二。"]) == "一。 二。"
    assert Pieces(["一。", "二。"], [""], []).join(["一。", "二。"]) == "一。二。"


def test_lines_are_gaps_of_a_text():
    pieces = pieces_of_text("O gato bebe. A vaca come.\n\num cão", splitter)
    assert pieces.texts == ["O gato bebe.", "A vaca come.", "", "um cão"]
    assert pieces.gaps == [" ", "\n", "\n"]


def test_a_line_is_translated_sentence_by_sentence(whole):
    translator = Translator.from_run(whole)
    assert whole.config.data.several_sentences == 0.0
    first, second, third = translator.translate(SENTENCES)
    assert translator.translate(LINE) == f"{first} {second}  {third}"
    assert translator.translate([LINE, "o gato bebe"]) == [
        f"{first} {second}  {third}",
        translator.translate("o gato bebe"),
    ]
    assert "".join(translator.stream_tokens(LINE)) == f"{first} {second}  {third}"
    assert translator.translate(LINE, split="never") != translator.translate(LINE)
    [[joined]] = translator.n_best([LINE])
    scores = [candidates[0].score for candidates in translator.n_best(SENTENCES)]
    assert min(scores) <= joined.score <= max(scores)


def test_several_results_and_prefixes_take_a_line_as_a_whole(whole):
    translator, said = Translator.from_run(whole), []
    beam = {"beam_size": 3, "n_best": 2}
    [candidates] = translator.predict([LINE], said.append, **beam)
    assert said == ["line 1 has several sentences, which are translated as one, since each line has several results."]
    assert candidates == translator.predict([LINE], **beam, split="never")[0]
    list(translator.predict_stream([LINE], said.append, prefixes=["the"]))
    assert said[1:] == ["line 1 has several sentences, which are translated as one, since there are prefixes."]
    with pytest.raises(InputError, match="split = 'always' cannot be used, since there are prefixes"):
        list(translator.predict_stream([LINE], prefixes=["the"], split="always"))


def test_a_sentence_longer_than_any_in_training_is_cut_with_a_warning(whole):
    said, long = [], ", ".join(["o gato bebe água"] * 9)
    text = Translator.from_run(whole).translate(["o gato", long], said.append)[1]
    assert said == [
        "line 2 has a sentence that is longer than any in training (19 tokens): it is translated in 3 parts."
    ]
    assert len(text.split()) > 19
    said.clear()
    Translator.from_run(whole).translate([f"{long}. {long}."], said.append)
    assert said == [
        "line 1 has 2 sentences that are longer than any in training (19 tokens): they are translated in 6 parts."
    ]


@pytest.mark.any_backend
def test_white_space_is_looked_at_once():
    """Guards a server: an expression whose time grows with the square of a run of spaces would take 15 minutes."""
    text = "o gato bebe leite e pão " + " " * 300_000 + "e a vaca come pão ali"
    pieces = splitter(text)
    assert pieces.join(pieces.texts) == text


@pytest.mark.any_backend
def test_an_ensemble_cuts_sentences_at_what_all_its_models_read(whole):
    """Guards against splitting by the first model, and dropping what the others cannot read."""
    said, model = [], whole.load_model()
    shorter = heedful.Transformer.from_config({**model.get_config(), "max_length": 12})
    shorter.set_weights(model.get_weights())
    short_run = SimpleNamespace(load_model=lambda: shorter, fingerprints=whole.fingerprints)
    Translator.from_runs([whole, short_run]).translate("o gato bebe água, " * 4, said.append)
    assert len(said) == 1
    assert "is longer than any in training (11 tokens): it is translated in" in said[0]


def test_a_server_is_told_what_is_not_read(whole):
    """Guards the `Warning` header of a translator that does not split."""
    never = dataclasses.replace(whole.config.decode, split="never")
    pieces = Translator.from_run(whole, never).pieces("o gato\n" + "o gato " * 20)
    assert pieces.texts == ["o gato", "o gato " * 20]
    assert pieces.notes == ["line 2 has 40 tokens; only the first 23 are translated."]
    assert Translator.from_run(whole).pieces("o gato. A vaca.\num cão").notes == []


def test_samples_of_a_line_do_not_depend_on_how_it_is_batched(whole):
    translator = Translator.from_run(whole, dataclasses.replace(whole.config.decode, sample=True, batch_size=2))
    lines = [LINE, "o gato bebe", LINE]
    alone = [next(translator.predict_stream([line], first=number)) for number, line in enumerate(lines, start=1)]
    assert translator.translate(lines) == [candidates[0].text for candidates in alone]
    assert translator.translate("o gato bebe") == translator.translate("o gato bebe", split="never")


@pytest.mark.slow
def test_a_model_of_paragraphs_is_not_split(tmp_path):
    pairs = [(f"{a}. {c}.", f"{b}. {d}.") for (a, b), (c, d) in zip(PAIRS, PAIRS[::-1], strict=True)]
    config = change(Config.from_toml(write_recipe(tmp_path, pairs=pairs)), "--train.updates", "2")
    run = workflows.train(config, tmp_path / "run", quiet)
    assert run.config.data.several_sentences > 0.9
    translator = Translator.from_run(Run.open(run.path))
    assert translator.translate(LINE) == translator.translate(LINE, split="never")
    assert translator.translate(LINE, split="always") == "  ".join(
        [" ".join(translator.translate(SENTENCES[:2])), translator.translate(SENTENCES[2])]
    )


def test_ctranslate2_splits_and_places_markup_alike(whole, cli_export):
    ours, theirs = Translator.from_run(whole), ctranslate2_translator(whole)
    marked = "o <b>gato</b> bebe. A vaca come {x}."
    for line in (LINE, marked):
        assert theirs.translate(line) == ours.translate(line)
    assert theirs.translate(marked).count("<b>") == theirs.translate(marked).count("{x}") == 1


@pytest.fixture
def cli_export(whole):
    from heedful.cli import main

    assert main(["export", str(whole.path), "--to", "ctranslate2", "--sentences", "3"]) == 0
