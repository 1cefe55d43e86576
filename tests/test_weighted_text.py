"""Training files that are read more often than others."""

import collections

import numpy as np
import pytest

from heedful import workflows
from heedful.config import Config
from heedful.core.errors import InputError
from heedful.data.corpus import Corpus
from tests.conftest import PAIRS, change, quiet, write_pairs

pytestmark = pytest.mark.any_backend

TEXTS = {"rare": [("a e", "x")] * 40, "plain": [("o e", "y")] * 80, "often": [("u e", "z")] * 40}


@pytest.fixture
def corpora(tmp_path, recipe):
    """Return a function from weights to the config of a training on three texts, each of one pair many times."""
    for name, pairs in TEXTS.items():
        for side, ending in enumerate(("src", "tgt")):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            (tmp_path / f"{name}.{ending}").write_text(text, encoding="utf-8")
    files = f'["{tmp_path}/[pro]*.src", "{tmp_path}/[pro]*.tgt"]'

    def config(*weights):
        listed = ", ".join(f'"{weight}"' for weight in weights)
        return change(
            Config.from_toml(recipe), "--data.train", files, "--data.weights", f"[{listed}]",
            "--data.batch_tokens", "16", "--tokenizer.kind", "word", "--train.updates", "6",
        )  # fmt: skip

    return config


def counted(config, path, batches):
    """Return how often the batches of a training contain each target word."""
    training = workflows.Training.prepared(config, path, quiet)
    run = training.run
    found = collections.Counter()
    for number in range(batches):
        labels = training.examples.batch(number)["labels"]
        found.update(run.target_tokenizer.lookup(int(i)) for i in labels[labels > 3])
    return found, training.examples


def test_pairs_are_read_as_often_as_their_weights_say(corpora, tmp_path):
    found, examples = counted(corpora("often*=3", "rare*=0.5"), tmp_path / "run", 400)
    rate = {name: found[word] / len(TEXTS[name]) for name, word in (("rare", "x"), ("plain", "y"), ("often", "z"))}
    assert rate["often"] / rate["plain"] == pytest.approx(3, rel=0.05)
    assert rate["rare"] / rate["plain"] == pytest.approx(0.5, rel=0.05)
    plain, unweighted = counted(corpora(), tmp_path / "other", 400)
    assert plain["y"] / plain["x"] == pytest.approx(2, rel=0.05)
    assert examples.batches_per_epoch == pytest.approx(unweighted.batches_per_epoch, rel=0.1)
    assert "weight 0.5, " in str(examples)


def test_the_first_pattern_that_matches_counts(corpora, tmp_path):
    found, _ = counted(corpora("often*=1", "*=1"), tmp_path / "run", 50)
    same, _ = counted(corpora(), tmp_path / "other", 50)
    assert found == same  # one weight for all is no mixture


@pytest.mark.slow
def test_a_weighted_training_resumes_exactly(corpora, tmp_path):
    config = corpora("often*=3", "rare*=0.5")
    whole = workflows.train(config, tmp_path / "whole", quiet)
    workflows.train(change(config, "--train.updates", "3"), tmp_path / "parts", quiet)
    parts = workflows.resume(tmp_path / "parts", quiet, config)
    one, other = (run.checkpoints.read_last()[0] for run in (whole, parts))
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (["never*=2"], r"no training file matches 'never\*'; they are often.src, plain.src, rare.src"),
        (["often*=0"], "is not from 0.001 to 1000"),
        (["often*=1e9"], "is not from 0.001 to 1000"),
        (["often"], "is not NAME=NUMBER"),
        (["often=-1"], "is not NAME=NUMBER"),
    ],
)
def test_bad_weights_are_refused(corpora, tmp_path, weights, message):
    lines = []
    with pytest.raises(InputError, match=message):
        workflows.Training.prepared(corpora(*weights), tmp_path / "run", lines.append)
    assert not lines  # before any text was read


def test_classes_are_not_balanced_where_files_have_weights(recipe_of):
    config = Config.from_toml(recipe_of("classify"))
    weighted = ["--data.valid", f'["{config.data.train[0]}"]', "--data.weights", '["*=2"]']
    assert change(config, *weighted, "--train.class_weights", '["a=2"]')
    with pytest.raises(InputError, match="changes how often a class is read"):
        change(config, *weighted, "--train.class_weights", '["balanced"]')


def test_weights_need_files_to_validate_on(recipe_of):
    config = Config.from_toml(recipe_of("generate"))
    with pytest.raises(InputError, match="need files in valid"):
        change(config, "--data.valid", "[]", "--data.weights", '["a=2"]')


def test_joined_corpora_have_the_items_of_all(tmp_path):
    parts = [Corpus.from_files(write_pairs(tmp_path, PAIRS[:2])), Corpus.from_pairs(PAIRS[2:5], "memory")]
    joined = Corpus.joined(parts)
    assert list(joined) == PAIRS[:5]
    assert Corpus.joined(parts[:1]) is parts[0]
    assert joined.fingerprint not in {part.fingerprint for part in parts}
