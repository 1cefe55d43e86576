"""Shortlists: word statistics, what is on a list, and that exports write nothing else."""

import json
import struct
import subprocess

import numpy as np
import pytest

from heedful.core.errors import InputError
from heedful.core.special_tokens import END_ID, FIRST_ID, START_ID, UNKNOWN_ID
from heedful.data import word_alignment
from heedful.data.tokenizer import Tokenizer
from heedful.data.word_alignment import TranslationTable
from heedful.interop.export import bergamot, ctranslate2
from heedful.interop.export import shortlist as module
from heedful.interop.export.ctranslate2_search import CTranslate2Model, CTranslate2Search
from heedful.interop.export.formats import FORMATS, format_named
from heedful.interop.export.marian import vocabularies
from heedful.interop.export.shortlist import FREQUENT, Shortlist, learn_shortlist, parallel_text
from tests.conftest import PAIRS, quiet
from tests.test_distillation import SETTINGS
from tests.test_engines import SMALL
from tests.test_export import make_run  # noqa: F401 - a fixture
from tests.test_huggingface import random_run

pytestmark = pytest.mark.any_backend


@pytest.fixture
def encoded(whole):
    tokenizers = whole.source_tokenizer, whole.target_tokenizer
    return [
        tuple(np.array(tokenizer.encode(text)) for tokenizer, text in zip(tokenizers, pair, strict=True))
        for pair in PAIRS
    ]  # fmt: skip


def test_a_table_knows_translations(whole, encoded):
    table = TranslationTable(encoded)
    sums = np.bincount(table.sources, table.probabilities)
    np.testing.assert_allclose(sums[np.unique(table.sources)], 1)
    for source, target in (("gato", "cat"), ("leite", "milk")):
        [token], [expected] = whole.source_tokenizer.encode(source), whole.target_tokenizer.encode(target)
        of_token = table.sources == token
        assert table.targets[of_token][table.probabilities[of_token].argmax()] == expected
    for shares, (source, target) in zip(table.shares(encoded[:3]), encoded, strict=False):
        assert shares.shape == (len(target), len(source))
        np.testing.assert_allclose(shares.sum(axis=1), 1)


def test_a_table_does_not_depend_on_its_parts(encoded, monkeypatch):
    lines = [*encoded, (np.zeros(0, np.int64), encoded[0][1]), (encoded[0][0], np.zeros(0, np.int64))]
    one, shares = TranslationTable(lines), TranslationTable(lines).shares(lines)
    monkeypatch.setattr(word_alignment, "PART_PAIRS", 20)
    parts = TranslationTable(lines)
    np.testing.assert_array_equal(parts.targets, one.targets)
    np.testing.assert_allclose(parts.probabilities, one.probabilities)
    for expected, share in zip(shares, parts.shares(lines), strict=True):
        np.testing.assert_allclose(share, expected)
    assert TranslationTable([]).shares([]) == []


def test_a_list_has_translations_copies_and_frequent_tokens(whole):
    said = []
    shortlist = learn_shortlist(whole, parallel_text(whole), said.append)
    assert said[0] == f"learning a shortlist from {len(PAIRS)} pairs of lines ..."
    source, target = whole.source_tokenizer, whole.target_tokenizer
    assert END_ID in shortlist.always
    assert target.encode("the")[0] in shortlist.always
    assert len(shortlist.always) <= FREQUENT + 1
    assert len(shortlist.translations) == len(source)
    [cat], [gato] = target.encode("cat"), source.encode("gato")
    assert cat in shortlist.translations[gato]
    assert shortlist.of_text([gato]) == sorted({*shortlist.always, *shortlist.translations[gato]})


def test_what_a_source_spells_can_be_copied(whole, monkeypatch):
    """Names and numbers: with two vocabularies, and at the beginning of a text, where no space is before them."""
    lines = [("Anna ate 17 cats", "the cat sleeps")]
    one, other = (Tokenizer.train(["Anna ate Anna 17 17 cats " * 3], "bpe", size) for size in (275, 290))
    monkeypatch.setattr(whole, "source_tokenizer", one)
    monkeypatch.setattr(whole, "target_tokenizer", other)
    shortlist = learn_shortlist(whole, lines, quiet)
    for text in ("Anna", "17"):
        listed = {shown for token in one.encode(text) for shown in shortlist.translations[token]}
        assert set(other.encode(text)) <= listed
        assert set(other.encode(f"cats {text}")[len(other.encode("cats")) :]) <= {*listed, *other.encode(" ")}


def test_lines_are_drawn_from_the_whole_text(whole, monkeypatch):
    lines = [("o gato", "the cat")] * 50 + [("a vaca", "the cow")] * 50 + [("o gato " * 99, "the king")]
    monkeypatch.setattr(module, "MAX_LINES", 40)
    [gato], [vaca] = map(whole.source_tokenizer.encode, ("gato", "vaca"))
    [cat], [cow], [king] = map(whole.target_tokenizer.encode, ("cat", "cow", "king"))
    said = []
    shortlist = learn_shortlist(whole, lines, said.append)
    assert said[0].startswith("learning a shortlist from 40 pairs") or "39 pairs" in said[0]
    assert cat in shortlist.translations[gato]
    assert cow in shortlist.translations[vaca]
    assert king not in shortlist.always  # its line is longer than any in training
    monkeypatch.setattr(module, "MAX_WORD_PAIRS", 10)
    monkeypatch.setattr(module, "CHUNK", 5)
    learn_shortlist(whole, lines, said.append)
    assert "from 5 pairs" in said[-2]


def few(tokenizer, count=3):
    """Return a shortlist of the end, and of some arbitrary tokens for each one."""
    size = len(tokenizer) - FIRST_ID
    lists = [[FIRST_ID + (7 * token + step) % size for step in range(count)] for token in range(len(tokenizer))]
    return Shortlist([END_ID], lists)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_ctranslate2_writes_tokens_of_the_list_only(make_run, tmp_path, beam_size):  # noqa: F811
    run = make_run()
    tokenizer, shortlist = run.source_tokenizer, few(run.source_tokenizer)
    sources = [tokenizer.encode(source) for source, _ in PAIRS[:10]]
    decode = run.config.decode.for_call(beam_size=beam_size)
    folder = ctranslate2.export(run, tmp_path / "ct2", "int8")

    def outside():
        search = CTranslate2Search(CTranslate2Model(run, folder), decode)
        results = [search([source])[0][0].ids for source in sources]
        # CTranslate2 always considers these two.
        lists = [{*shortlist.of_text(source), UNKNOWN_ID, START_ID} for source in sources]
        return [set(ids) - tokens for ids, tokens in zip(results, lists, strict=True)]

    assert any(outside())
    ctranslate2.add_shortlist(run, folder, shortlist)
    assert not any(outside())


def test_searches_that_name_tokens_consider_the_whole_vocabulary(make_run, tmp_path):  # noqa: F811
    """Between searches with lists of other lengths, whose positions CTranslate2 would take for these tokens."""
    run = make_run()
    tokenizer = run.source_tokenizer
    sources = [tokenizer.encode(source) for source, _ in PAIRS[:8]]
    plain, listed = (ctranslate2.export(run, tmp_path / name, "int8") for name in ("plain", "listed"))
    lists = few(tokenizer).translations
    shortlist = Shortlist([END_ID], [one[: 1 + number % 3] for number, one in enumerate(lists)])
    ctranslate2.add_shortlist(run, listed, shortlist)
    exported, whole_vocabulary = CTranslate2Model(run, listed), CTranslate2Model(run, plain)
    begun = tokenizer.encode("rei")
    settings = [
        ({}, [begun] * 8), ({"forbidden": ("gato", "the")}, None), ({"sample": True, "top_k": 50}, None),
        ({"repetition_penalty": 1.5}, None), ({"no_repeat_ngram": 2}, None),
    ]  # fmt: skip
    search = CTranslate2Search(exported, run.config.decode)
    for changes, prefixes in settings:
        shortened = [search([source])[0][0].ids for source in sources]
        decode = run.config.decode.for_call(**changes)
        results = [
            CTranslate2Search(model, decode)(sources, prefixes=prefixes) for model in (exported, whole_vocabulary)
        ]
        assert results[0] == results[1]
        if prefixes:
            assert all(candidates[0].ids[: len(begun)] == begun for candidates in results[0])
        alone = [
            CTranslate2Search(CTranslate2Model(run, listed), run.config.decode)([one])[0][0].ids for one in sources
        ]
        assert shortened == alone


def test_a_token_with_white_space_is_refused(make_run, tmp_path, monkeypatch):  # noqa: F811
    run = make_run()
    folder = ctranslate2.export(run, tmp_path / "ct2")
    monkeypatch.setattr(run, "target_tokenizer", Tokenizer.train(["o gato"], "char", 20))
    with pytest.raises(InputError, match="cannot have a token with white space, such as ' '"):
        ctranslate2.add_shortlist(run, folder, few(run.target_tokenizer))


def test_a_shortlist_of_bergamot_is_read_back(tmp_path, rng):
    lists = [rng.choice(50, rng.integers(0, 9), replace=False).tolist() for _ in range(40)]
    (tmp_path / bergamot.SHORTLIST).write_bytes(bergamot.shortlist_bytes(lists))
    assert [one.tolist() for one in bergamot.read_shortlist(tmp_path)] == lists
    assert bergamot.read_shortlist(tmp_path / "none") is None


def test_the_file_of_bergamot_has_its_layout():
    """Numbers of src/data/shortlist.h of Marian: magic, checksum, two limits, two lengths, ends, and pieces."""
    content = bergamot.shortlist_bytes([[7, 9], [], [8]])
    numbers = struct.unpack("<6Q4Q3I", content)
    assert numbers[0] == 0xF11A48D5013417F5
    assert numbers[2:] == (0, 0, 4, 3, 0, 2, 2, 3, 7, 9, 8)
    checksum = 0
    for word in struct.unpack("<9Q", content[16:88]):  # of whole words only
        checksum ^= (word + 0x9E3779B9 + (checksum << 6) + (checksum >> 2)) % 2**64
    assert numbers[1] == checksum


def test_a_shortlist_of_bergamot_has_pieces(tmp_path):
    pytest.importorskip("sentencepiece")
    run = random_run(tmp_path, "translate", SMALL | {"positions": "sinusoidal_marian", "start_vector": "zero"})
    (tmp_path / "out").mkdir()
    bergamot.write(run, tmp_path / "out", "int8")
    source, target = vocabularies(run)
    shortlist = few(run.target_tokenizer)
    bergamot.add_shortlist(run, tmp_path / "out", shortlist)
    lists = bergamot.read_shortlist(tmp_path / "out")
    assert [target.ids[piece] for piece in lists[0]] == [END_ID]  # the end piece, and the tokens for every text
    for piece in range(300, 310):
        expected = [token for token in shortlist.translations[source.ids[piece]] if token in target.ids]
        assert sorted(target.ids[one] for one in lists[piece]) == sorted(expected)
    assert len(lists[-1])  # as Marian demands
    assert 'shortlist: ["lex.bin"]' in (tmp_path / "out" / "config.yml").read_text()
    opened = bergamot.open_export(run, tmp_path / "out", "int8")
    [(text, _)] = opened.write(["o gato"], 8, 1)
    pieces = opened.source.encode("o gato")
    considered = {int(one) for piece in [*pieces, 0] for one in lists[piece]}
    considered |= {*pieces, 0} if opened.joint else set()
    others = (piece for piece in range(len(target.ids)) if piece not in considered)
    while len(considered) % 8:
        considered.add(next(others))
    expected = opened.model.greedy([*pieces, 0], 8, np.array(sorted(considered)))
    assert set(expected) <= considered
    assert text == opened.target.decode(expected)


def test_exports_with_a_shortlist_are_compared(run, cli):
    done = cli("export", run, "--to", "ctranslate2", "--quantization", "int8", "--shortlist")
    assert done.returncode == 0, done.stderr.decode()
    said = done.stdout.decode()
    assert "100.00% of 20 texts are identical" in said.split("int8, shortlist, ")[1]
    assert (run / "ctranslate2" / "vmap.txt").is_file()
    texts = "".join(f"{source}\n" for source, _ in PAIRS[:10])
    ours, theirs = (cli("translate", run, *engine, stdin=texts).stdout for engine in ([], ["--engine", "ctranslate2"]))
    assert ours == theirs
    assert cli("export", run, "--to", "ctranslate2").returncode == 0  # without one again
    assert not (run / "ctranslate2" / "vmap.txt").exists()


@pytest.mark.parametrize("name", sorted(set(FORMATS) - {"ctranslate2", "bergamot"}))
def test_a_format_without_shortlists_refuses_one(run, cli, name):
    done: subprocess.CompletedProcess = cli("export", run, "--to", name, "--shortlist")
    assert done.returncode == 2
    assert done.stderr.decode().endswith(
        f"Exports for {format_named(name).library} have no shortlist: leave out --shortlist.\n"
    )


def test_a_shortlist_needs_parallel_text(whole, run, cli, tmp_path):
    with pytest.raises(InputError, match="but there are no pairs of lines of usual length"):
        learn_shortlist(whole, [("o gato", "")], quiet)
    config = json.loads((run / "config.json").read_text())
    config["data"] |= {"train": [], "valid": [], "test": []}  # as that of an imported model
    (run / "config.json").write_text(json.dumps(config))
    for name, side in (("a", 0), ("b", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS), encoding="utf-8")
    files = [tmp_path / "a", tmp_path / "b"]
    done = cli("export", run, "--to", "ctranslate2", "--files", *files, "--shortlist")
    assert b"see heedful export --shortlist: data.train and data.valid must name text files" in done.stderr
    done = cli("export", run, "--to", "ctranslate2", "--files", *files, "--shortlist", *files)
    assert done.returncode == 0, done.stderr.decode()
    assert (run / "ctranslate2" / "vmap.txt").is_file()


def test_a_student_is_not_begun_if_an_export_has_no_shortlist(run, cli, tmp_path):
    done = cli("distil", run, "--run", tmp_path / "student", "--to", "onnx", "--shortlist", *SETTINGS)
    assert b"have no shortlist" in done.stderr
    assert not (tmp_path / "student").exists()
