"""BPE-dropout: valid segmentations that are a function of seed and text, and exact resuming."""

import shutil

import numpy as np
import pytest

from heedful import workflows
from heedful.config import Config
from heedful.core.errors import InputError
from heedful.data.bpe_dropout import VERSIONS, MergeDropout
from heedful.data.corpus import Corpus
from heedful.data.encoded import encode
from heedful.data.tokenizer import Tokenizer
from heedful.runs.run import Run
from tests.conftest import change, quiet

TEXTS = ["o gato preto bebe leite", "a menina come dois bolos grandes ⟦1⟧ hoje", "Ágata não sabe, mas bebe ☕", "", "o"]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(TEXTS * 20, "bpe", 330, new_tokens=["⟦1⟧"], prefix_space=True, normalize="nfc")


@pytest.mark.any_backend
def test_without_dropped_merges_it_is_bpe(tokenizer):
    """Guards the order of merges: an independent library computes the usual segmentation."""
    for usual, *others in MergeDropout(tokenizer, 1e-12, 3).versions(TEXTS, 0):
        assert all(ids == usual for ids in others)
    assert [each[0] for each in MergeDropout(tokenizer, 0.5, 3).versions(TEXTS, 0)] == tokenizer.encode_batch(TEXTS)


@pytest.mark.any_backend
def test_every_segmentation_spells_the_text(tokenizer):
    versions = MergeDropout(tokenizer, 0.3, 3).versions(TEXTS, 7)
    for text, each in zip(TEXTS, versions, strict=True):
        assert len(each) == VERSIONS
        assert {tokenizer.decode(ids) for ids in each} == {tokenizer.decode(tokenizer.encode(text))}
    assert len({tuple(ids) for ids in versions[1]}) > 4
    assert versions == MergeDropout(tokenizer, 0.3, 3).versions(TEXTS, 7)
    assert versions != MergeDropout(tokenizer, 0.3, 4).versions(TEXTS, 7)
    assert versions[1] != MergeDropout(tokenizer, 0.3, 3).versions(TEXTS, 8)[1]
    letters = MergeDropout(tokenizer, 0.999999, 3).versions(["gato"], 0)[0]
    assert len(letters[0]) < len(letters[1]) == 5  # with the space before it


@pytest.mark.any_backend
@pytest.mark.parametrize("cached", [False, True])
def test_encoded_pairs_have_all_versions(tokenizer, tmp_path, cached):
    corpus = Corpus.from_pairs([(text, text) for text in TEXTS], "texts")
    for _ in range(1 + cached):
        pairs = encode(corpus, tokenizer, tokenizer, 28, tmp_path if cached else None, (0.4, 1))
    assert (pairs.versions, pairs.filtered.empty, pairs.filtered.too_long) == (VERSIONS, 1, 0)
    assert len(pairs.source) == VERSIONS * pairs.filtered.kept == VERSIONS * 4
    assert pairs.lengths[0].tolist() == [
        max(pairs.source.lengths[row + version * 4] for version in range(VERSIONS)) for row in range(4)
    ]
    assert max(pairs.lengths[0].max(), pairs.lengths[1].max()) < 28
    plain = encode(corpus, tokenizer, tokenizer, 28)
    for row in range(4):
        np.testing.assert_array_equal(pairs.source[row], plain.source[row])


@pytest.mark.any_backend
@pytest.mark.parametrize("packed", ["30", pytest.param("0", marks=pytest.mark.slow)])
def test_batches_draw_segmentations_and_training_resumes_exactly(config, tmp_path, packed):
    config = change(
        config, "--data.bpe_dropout", "0.5", "--tokenizer.kind", "bpe", "--tokenizer.vocab_size", "300",
        "--data.pack_tokens", packed, "--data.max_tokens", "29",
    )  # fmt: skip
    whole = workflows.train(config, tmp_path / "whole", quiet)
    training = workflows.Training(whole, quiet)
    batches = [training.examples.batch(number) for number in range(12)]
    again = [training.examples.batch(number) for number in range(12)]
    for one, other in zip(batches, again, strict=True):
        np.testing.assert_array_equal(one["source"], other["source"])
    if packed == "0":
        spelled = {}
        for row in (row.tolist() for batch in batches for row in batch["source"]):
            spelled.setdefault(whole.source_tokenizer.decode(row), set()).add(tuple(row))
        assert max(map(len, spelled.values())) > 1
    shutil.copytree(whole.path, tmp_path / "again")
    stopped = Run.open(tmp_path / "again")
    stopped.checkpoints.paths()[-1].unlink()
    resumed = workflows.resume(stopped.path, quiet)
    one, other = (run.checkpoints.read_last()[0] for run in (whole, resumed))
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


@pytest.mark.any_backend
def test_other_vocabularies_are_refused():
    with pytest.raises(InputError, match=r"needs tokenizer\.kind = 'bpe'"):
        Config.from_table({"data": {"bpe_dropout": 0.1}, "tokenizer": {"kind": "char"}}, "recipe")
    with pytest.raises(InputError, match="this tokenizer is a WordLevel"):
        MergeDropout(Tokenizer.train(TEXTS, "word", 30), 0.1, 1)
