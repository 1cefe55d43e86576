"""Packed pairs: none is lost, none attends to its neighbours, and the loss equals that of unpacked pairs."""

import numpy as np
import pytest
from keras import ops

import heedful
from heedful import workflows
from heedful.config import Config
from heedful.config.settings import override
from heedful.data.batches import BatchPlan
from heedful.data.encoded import encode
from heedful.data.examples import PackedPairs, TranslationExamples
from heedful.data.packing import pack
from heedful.data.tokenizer import Tokenizer
from heedful.tasks.translation_data import examples_of
from heedful.training.objective import batch_sums

SIZES = {"num_layers": 2, "d_model": 12, "num_heads": 3, "d_ff": 14, "max_length": 29, "dropout": 0.0}


@pytest.mark.any_backend
def test_packing_keeps_every_pair_and_wastes_little_room(rng):
    source = rng.integers(1, 45, 5000)
    target = np.clip(source + rng.integers(-6, 7, 5000), 1, 60)
    rows = pack(source, 40, target)
    assert sorted(piece for row in rows for piece in row) == list(range(5000))
    for row in rows:
        assert len(row) == 1 or max(source[row].sum(), target[row].sum()) <= 40
    alone = np.maximum(source, target) > 40
    fits = np.maximum(source, target)[~alone].sum() / 40
    assert len(rows) - alone.sum() <= 1.04 * fits


@pytest.fixture
def pairs(corpus):
    tokenizer = Tokenizer.train((side for pair in corpus for side in pair), "word", 60)
    return encode(corpus, tokenizer, tokenizer, 20)


@pytest.fixture
def packed(pairs, recipe):
    return examples_of(override(Config.from_toml(recipe), ["--data.pack_tokens", "17"]), pairs)


def unpack_pairs(batch):
    """Yield (source, target, labels) of each pair of a packed batch."""
    for row in range(len(batch["labels"])):
        for number in range(1, batch["target_segments"][row].max() + 1):
            there = {side: batch[f"{side}_segments"][row] == number for side in ("source", "target")}
            for side, places in there.items():
                positions = batch[f"{side}_positions"][row][places]
                assert positions.tolist() == list(range(places.sum()))
            texts = batch["source"][row][there["source"]], batch["target"][row][there["target"]]
            yield *map(tuple, texts), tuple(batch["labels"][row][there["target"]])


@pytest.mark.any_backend
def test_one_pass_yields_every_pair_once_and_unchanged(packed, pairs):
    """Each pair has the ids that it has in an unpacked batch of its own."""
    assert isinstance(packed, PackedPairs)
    lengths = pairs.source.lengths + 1, pairs.target.lengths + 1
    single = TranslationExamples(pairs, BatchPlan(*lengths, batch_tokens=1, max_shapes=20))
    wanted = sorted(
        tuple(tuple(ids[ids != 0]) for ids in (batch["source"][0], batch["target"][0], batch["labels"][0]))
        for batch in single.one_pass()
    )
    batches = list(packed.one_pass())
    assert sorted(pair for batch in batches for pair in unpack_pairs(batch)) == wanted
    for batch in batches:
        assert (batch["weights"] == (batch["labels"] != 0)).all()
        assert batch["source"].dtype == batch["target_segments"].dtype == np.int32
    assert len(packed.rows) < len(pairs.source) / 2
    assert any((batch["target_segments"].max(axis=1) > 1).any() for batch in batches)
    assert packed.tokens(3) == packed.batch(3)["weights"].sum()


@pytest.mark.parametrize(
    "positions",
    [
        pytest.param("sinusoidal", marks=pytest.mark.slow),
        "rotary",
        pytest.param("learned", marks=pytest.mark.slow),
    ],
)
def test_packed_and_unpacked_pairs_have_the_same_loss(packed, pairs, positions, numpy):
    """Compares all sums of `batch_sums` over one pass, in which every pair comes once."""
    model = heedful.Transformer(60, 60, **SIZES, positions=positions)
    lengths = pairs.source.lengths + 1, pairs.target.lengths + 1
    plain = TranslationExamples(pairs, BatchPlan(*lengths, batch_tokens=100, max_shapes=2))
    one, other = (sum(numpy(batch_sums(model, batch)) for batch in e.one_pass()) for e in (packed, plain))
    np.testing.assert_allclose(one, other, rtol=1e-5)


def test_no_pair_attends_to_its_neighbours(packed, numpy):
    """Changing the first pair of each row leaves the logits of the others unchanged, up to rounding."""
    model = heedful.Transformer(60, 60, **SIZES)
    batch = next(batch for batch in packed.one_pass() if (batch["target_segments"] == 2).any())
    inputs = {name: array for name, array in batch.items() if name not in ("labels", "weights")}
    before = numpy(model(inputs))
    for side in ("source", "target"):
        first = inputs[f"{side}_segments"] == 1
        inputs[side] = np.where(first, 4 + (inputs[side] + 3) % 50, inputs[side]).astype(np.int32)
    after = numpy(model({name: ops.convert_to_tensor(array) for name, array in inputs.items()}))
    others, first = batch["target_segments"] > 1, batch["target_segments"] == 1
    np.testing.assert_allclose(after[others], before[others], atol=1e-5)
    assert np.abs(after[first] - before[first]).max() > 0.01


@pytest.mark.slow  # resuming is the same code for all kinds of examples
def test_a_packed_training_learns_and_resumes_exactly(recipe, tmp_path):
    """Three updates, and three after resuming, give bitwise the state of six."""
    said = []
    options = ["--data.pack_tokens", "17", "--train.updates"]
    config = override(Config.from_toml(recipe), [*options, "6"])
    whole = workflows.train(config, tmp_path / "whole", said.append)
    assert any("pairs in" in line and "rows" in line for line in said)
    workflows.train(override(config, [*options, "3"]), tmp_path / "parts", said.append)
    parts = workflows.resume(tmp_path / "parts", said.append, config)
    one, other = whole.checkpoints.read_last()[0], parts.checkpoints.read_last()[0]
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)
    log = whole.log.read()
    assert log[-1]["loss"] < log[0]["loss"]
