"""The generated corpora: disjoint parts, correct grammar, correct answers."""

import json
import random

import pytest

from heedful.config import Config
from heedful.core.errors import InputWarning
from heedful.data.phrasebook import Grammar, part_of, phrasebook
from heedful.data.phrasebook_words import (
    ADJECTIVES,
    NAMES,
    NOUNS,
    OWNED,
    VERBS,
    adjectives,
    conjugate,
    goes_with,
    nouns,
)
from heedful.data.puzzles import reverse, reverse_pairs
from heedful.tasks.translation_data import corpora

pytestmark = pytest.mark.any_backend


@pytest.fixture(scope="module")
def parts():
    return {part: phrasebook(part, 2000) for part in ("train", "valid", "test", "unseen")}


def test_parts_are_disjoint_and_repeatable(parts):
    sentences = {part: {source for source, _ in pairs} for part, pairs in parts.items()}
    assert all(len(s) == 2000 for s in sentences.values())
    names = list(sentences)
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            assert not sentences[one] & sentences[other]
    assert phrasebook("test", 2000) == parts["test"]


@pytest.mark.slow
def test_the_phrasebook_has_200_000_distinct_sentences():
    assert len({source for source, _ in phrasebook("train", 200_000)}) == 200_000


def test_sentences_with_a_held_out_combination_are_unseen():
    bonds = [(f"noun{i}", "adjective") for i in range(1000)]
    held_out = [bond for bond in bonds if part_of("x", {bond}) == "unseen"]
    assert 20 < len(held_out) < 90
    assert part_of("y", {held_out[0], ("a", "b")}) == "unseen"


def test_a_predicate_adjective_forms_a_bond():
    """Sentences about a name are the exception: the name is no noun."""
    grammar = Grammar(random.Random(1))
    names = {name for name, _ in NAMES}
    made = [grammar.copula() for _ in range(300)]
    assert all(bonds for source, _, bonds in made if source.split()[0] not in names)


def test_words_go_together():
    """Guards natural sentences: a verb only has objects that its row allows, and an adjective only its nouns."""
    assert [noun.singular for noun in nouns("drink,chave")][-1] == "chave"
    assert not goes_with(nouns("bicicleta")[0], "drink,food,text")
    for noun in NOUNS:
        assert all(goes_with(noun, row.nouns) for row in adjectives(noun))
    for verb in VERBS:
        assert nouns(verb.subjects)
        assert nouns(verb.objects)
        assert verb.places == "-" or nouns(verb.places)
    known = {noun.singular for noun in NOUNS} | {noun.kind for noun in NOUNS} | {"person", "-"}
    lists = [row.nouns for row in ADJECTIVES] + [part for verb in VERBS for part in verb[4:]] + [OWNED]
    assert {word for words in lists for word in words.split(",")} <= known


def test_verbs_are_conjugated_correctly():
    assert list(conjugate("comprar", "past").values()) == ["comprei", "comprou", "compramos", "compraram"]
    assert list(conjugate("beber", "present").values()) == ["bebo", "bebe", "bebemos", "bebem"]
    assert list(conjugate("abrir", "present").values()) == ["abro", "abre", "abrimos", "abrem"]
    assert list(conjugate("abrir", "habit").values()) == ["abria", "abria", "abríamos", "abriam"]
    assert list(conjugate("ler", "future").values()) == ["lerei", "lerá", "leremos", "lerão"]
    assert list(conjugate("ver", "present").values()) == ["vejo", "vê", "vemos", "veem"]


def test_a_portuguese_sentence_has_only_one_translation(parts):
    """Guards learnability: a sentence with an ambiguous form must contain a word that resolves it."""
    meanings = {}
    for seed in range(3):
        for source, target in phrasebook("train", 20_000, seed):
            assert meanings.setdefault(source, target) == target


def test_articles_agree_with_nouns_and_contract_with_prepositions(parts):
    for pairs in parts.values():
        for source, target in pairs:
            words = source.lower().rstrip(".?").split()
            assert not {"de", "em"} & set(words), source  # they contract with the article
            for wrong in ("do menina", "da menino", "os casa", "as carro", "uma gato", "um vaca"):
                assert wrong not in source.lower()
            assert "  " not in source + target
            assert source[0].isupper()
            assert target[0].isupper()


def test_a_sequence_of_400_symbols_is_reversed():
    [(forth, back)] = reverse_pairs("train", 1, length=400)
    assert len(forth.split()) == 400
    assert reverse(forth.split()) == back.split()


def test_reversal_gives_the_example_of_the_tutorial():
    """Guards the order of counting: heedful 0.1.0 counted over the reversed row, and gave 5 2 X 3 0 9 5 1 X."""
    row = "0 1 5 9 0 3 5 2 5".split()
    assert reverse(row) == "5 2 X 3 X 9 5 1 0".split()
    assert reverse(row, counted_in="output") == "5 2 X 3 0 9 5 1 X".split()


@pytest.mark.filterwarnings("default::heedful.core.errors.InputWarning")
def test_an_old_reversal_run_keeps_its_counting_rule(tmp_path):
    config = Config.from_table({"data": {"corpus": "reverse", "length": 7, "sentences": 99}}, "test")
    assert config.data.repeats_counted_in == "input"
    table = json.loads(config.to_json())
    del table["data"]["repeats_counted_in"]
    table["format"] = 1
    (tmp_path / "config.json").write_text(json.dumps(table))
    with pytest.warns(InputWarning, match="counts repeats in the order of the output"):
        old = Config.from_json(tmp_path / "config.json")
    assert old.data.repeats_counted_in == "output"
    assert all(target.split() == reverse(source.split(), "output") for source, target in corpora(old)["train"])


def test_reverse_pairs_have_disjoint_parts_and_correct_answers():
    pairs = {part: dict(reverse_pairs(part, 500)) for part in ("train", "valid", "test")}
    assert not pairs["train"].keys() & pairs["test"].keys()
    assert not pairs["valid"].keys() & pairs["test"].keys()
    for source, target in pairs["test"].items():
        assert target.split() == reverse(source.split())
    old = dict(reverse_pairs("test", 500, counted_in="output"))
    assert old.keys() == pairs["test"].keys()
    assert sum(old[source] != target for source, target in pairs["test"].items()) > 400
    assert len(reverse_pairs("train", 3, length=23, vocabulary=53)[0][0].split()) == 23
    with pytest.raises(ValueError, match="too few sequences"):
        reverse_pairs("test", 500, length=3)
