"""Shortlists: word statistics, what is on a list, and that exports write nothing else."""

import json
import subprocess

import numpy as np
import pytest

from heedful.core.errors import InputError
from heedful.core.special_tokens import END_ID, FIRST_ID, START_ID, UNKNOWN_ID
from heedful.data import word_alignment
from heedful.data.word_alignment import TranslationTable
from heedful.interop.export import bergamot, ctranslate2
from heedful.interop.export.ctranslate2_search import CTranslate2Model, CTranslate2Search
from heedful.interop.export.formats import FORMATS, format_named
from heedful.interop.export.shortlist import FREQUENT, TRANSLATIONS, Shortlist, learn_shortlist, parallel_text
from tests.conftest import PAIRS, quiet
from tests.test_distillation import SETTINGS
from tests.test_export import make_run  # noqa: F401 - a fixture

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
    assert said == [f"learning a shortlist from {len(PAIRS)} pairs of lines ..."]
    source, target = whole.source_tokenizer, whole.target_tokenizer
    assert END_ID in shortlist.always
    assert target.encode("the")[0] in shortlist.always
    assert len(shortlist.always) <= FREQUENT + 1
    assert len(shortlist.translations) == len(source)
    for token in range(FIRST_ID, len(source)):
        assert len(shortlist.translations[token]) <= TRANSLATIONS + 1
        assert (same := target.lookup(source.lookup(token))) is None or same in shortlist.translations[token]
    [cat], [gato] = target.encode("cat"), source.encode("gato")
    assert cat in shortlist.translations[gato]
    assert shortlist.of_text([gato]) == sorted({*shortlist.always, *shortlist.translations[gato]})


def few(tokenizer):
    """Return a shortlist of the end, and of three arbitrary tokens for each one."""
    size = len(tokenizer) - FIRST_ID
    return Shortlist(
        [END_ID], [[FIRST_ID + (7 * token + step) % size for step in range(3)] for token in range(len(tokenizer))]
    )


@pytest.mark.parametrize("beam_size", [1, 3])
def test_ctranslate2_writes_tokens_of_the_list_only(make_run, tmp_path, beam_size):  # noqa: F811
    run = make_run()
    tokenizer, shortlist = run.source_tokenizer, few(run.source_tokenizer)
    sources = [tokenizer.encode(source) for source, _ in PAIRS[:10]]
    decode = run.config.decode.for_call(beam_size=beam_size)
    folder = ctranslate2.export(run, tmp_path / "ct2", "int8")

    def outside(prefixes=None):
        search = CTranslate2Search(CTranslate2Model(run, folder), decode)
        results = [search([source], prefixes=prefixes)[0][0].ids for source in sources]
        # CTranslate2 always considers these two.
        lists = [{*shortlist.of_text(source), UNKNOWN_ID, START_ID} for source in sources]
        return [set(ids) - tokens for ids, tokens in zip(results, lists, strict=True)]

    assert any(outside())
    ctranslate2.add_shortlist(run, folder, shortlist)
    assert not any(outside())
    begun = next(token for token in range(FIRST_ID, len(tokenizer)) if token not in shortlist.of_text(sources[0]))
    assert all(extra <= {begun} for extra in outside([[begun]]))


def test_a_shortlist_of_bergamot_is_read_back(tmp_path, rng):
    lists = [rng.choice(50, rng.integers(0, 9), replace=False).tolist() for _ in range(40)]
    (tmp_path / bergamot.SHORTLIST).write_bytes(bergamot.shortlist_bytes(lists))
    assert [one.tolist() for one in bergamot.read_shortlist(tmp_path)] == lists
    assert bergamot.read_shortlist(tmp_path / "none") is None


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
    with pytest.raises(InputError, match="but there are no pairs of lines"):
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
