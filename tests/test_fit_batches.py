"""Batches for `fit` of any Keras model, and examples that are drawn afresh."""

import zlib

import keras
import numpy as np
import pytest

import heedful
from heedful.config import Config, DataConfig, TokenizerConfig
from heedful.core.errors import InputError
from heedful.core.plugins import find_task
from heedful.data.puzzles import reverse
from heedful.data.tokenizer import Tokenizer
from heedful.layers import DecoderBlock, EncoderBlock, TokenEmbedding
from heedful.tasks.translation_data import fresh_puzzles
from heedful.training.fit_batches import FitBatches, pair_batches
from tests.conftest import PAIRS, SLOW_ON_TENSORFLOW, write_pairs

TEXT = PAIRS[:10]


@pytest.fixture
def tokenizer():
    return Tokenizer.train((text for pair in TEXT for text in pair), "word", 60)


def batches_of(made):
    """Return the batches of one epoch as NumPy arrays, from a PyDataset or a tf.data.Dataset."""
    arrays = [made[i] for i in range(len(made))] if isinstance(made, FitBatches) else made.as_numpy_iterator()
    return list(arrays)


def texts(batches, tokenizer):
    return sorted(
        (tokenizer.decode(source), tokenizer.decode(labels))
        for inputs, labels, *_ in batches
        for source, labels in zip(inputs["source"], labels, strict=True)
        if source.any()
    )


def test_one_pass_has_every_pair_once_shifted_for_teacher_forcing(tokenizer):
    batches = batches_of(pair_batches(TEXT, tokenizer, one_pass=True, batch_sentences=4, sample_weights=True))
    assert texts(batches, tokenizer) == sorted(TEXT)
    for inputs, labels, weights in batches:
        assert (inputs["target"][:, 0][labels[:, 0] != 0] == tokenizer.start_id).all()
        shifted = np.where(labels[:, :-1] == tokenizer.end_id, 0, labels[:, :-1])
        np.testing.assert_array_equal(inputs["target"][:, 1:], shifted)
        np.testing.assert_array_equal(weights, labels != 0)


def test_epochs_differ_and_cover_all_pairs(tokenizer):
    batches = pair_batches(TEXT, tokenizer, batch_sentences=3, max_shapes=2)
    epochs = []
    for _ in range(8):
        epochs.append([labels.tolist() for _, labels in batches_of(batches)])
        if isinstance(batches, FitBatches):
            batches.on_epoch_end()
    assert epochs[0] != epochs[1]
    seen = {str(row) for epoch in epochs for labels in epoch for row in labels}
    assert len({row.replace(", 0", "") for row in seen}) == len(TEXT)


@pytest.mark.any_backend
def test_files_and_rows_of_datasets_are_read_alike(tokenizer, tmp_path):
    nested = [{"translation": {"pt": source, "en": target}} for source, target in TEXT]
    flat = [{"id": 7, "pt": source, "en": target} for source, target in TEXT]
    column = [{"sentence": source, "translation": target} for source, target in TEXT]
    options = {"one_pass": True, "batch_sentences": 4}
    want = batches_of(pair_batches(TEXT, tokenizer, **options))
    for pairs, columns in ((nested, ("pt", "en")), (flat, ("pt", "en")), (column, ("sentence", "translation")),
                           (write_pairs(tmp_path, TEXT), None)):  # fmt: skip
        made = batches_of(pair_batches(pairs, tokenizer, columns=columns, **options))
        for one, two in zip(made, want, strict=True):
            np.testing.assert_array_equal(one[1], two[1])
    with pytest.raises(InputError, match="The rows have no column 'de'"):
        pair_batches(flat, tokenizer, columns=("de", "en"))
    with pytest.raises(InputError, match="Rows need the names of their columns"):
        pair_batches(flat, tokenizer)  # their names would be read as texts
    with pytest.raises(InputError, match="needs rows with names"):
        pair_batches(TEXT, tokenizer, columns=("pt", "en"))
    with pytest.raises(InputError, match="Missing text"):
        pair_batches([tmp_path / "a.pt", tmp_path / "a.en"], tokenizer)


@SLOW_ON_TENSORFLOW
@pytest.mark.parametrize("kind", [pytest.param("finished", marks=pytest.mark.slow), "by hand"])
def test_any_model_is_fitted_and_evaluated(kind, tokenizer, numpy):
    size = len(tokenizer)
    if kind == "finished":
        model = heedful.Transformer(size, size, num_layers=1, d_model=12, num_heads=2, d_ff=12, dropout=0.0)
    else:
        source, target = (keras.Input((None,), dtype="int32", name=name) for name in ("source", "target"))
        memory = EncoderBlock(12, 2, 12, dropout=0.0)(TokenEmbedding(size, 12, mask_zero=True)(source))
        x = TokenEmbedding(size, 12, mask_zero=True)(target)
        x = DecoderBlock(12, 2, 12, causal=True, dropout=0.0)(x, memory=memory)
        model = keras.Model({"source": source, "target": target}, keras.layers.Dense(size)(x))
    model.compile("adam", heedful.TokenCrossentropy(), metrics=[heedful.TokenAccuracy()])
    batches = pair_batches(TEXT * 3, tokenizer, batch_sentences=5, max_shapes=3)
    history = model.fit(batches, epochs=4, verbose=0, shuffle=False).history["loss"]
    assert history[-1] < history[0]
    scored = pair_batches(TEXT, tokenizer, one_pass=True, batch_sentences=16)  # most rows are empty
    losses = []
    for inputs, labels in batches_of(scored):
        logits = numpy(model(inputs)).astype("float64")
        nll = np.logaddexp.reduce(logits, -1) - np.take_along_axis(logits, labels[..., None], -1)[..., 0]
        losses.append(nll[labels != 0].mean())
    assert model.evaluate(scored, verbose=0, return_dict=True)["loss"] == pytest.approx(np.mean(losses), rel=1e-4)


@pytest.mark.any_backend
def test_batches_of_other_tasks_can_be_fitted_too(recipe_of, tmp_path):
    from heedful.workflows import Training
    from tests.conftest import quiet

    training = Training.create(Config.from_toml(recipe_of("fill")), tmp_path / "run", quiet)
    model = training.run.build_model()
    inputs, labels, weights = FitBatches(training.examples, sample_weights=True)[0]
    assert model.features(inputs).shape[:2] == labels.shape == weights.shape


@pytest.fixture
def puzzle():
    data = DataConfig(corpus="reverse", fresh=True, sentences=1000, length=9, batch_sentences=32)
    config = Config(data=data, tokenizer=TokenizerConfig(kind="word", vocab_size=40))
    tokenizer = Tokenizer.train(["0 1 2 3 4 5 6 7 8 9 X"], "word", 40)
    return fresh_puzzles(config, tokenizer, tokenizer), tokenizer


@pytest.mark.any_backend
def test_fresh_puzzles_are_right_and_never_held_out(puzzle):
    examples, tokenizer = puzzle
    seen = []
    for number in range(40):
        batch = examples.batch(number)
        assert batch["labels"].shape == (32, 10) == examples.shape(number)[::2]
        for source, labels in zip(batch["source"], batch["labels"], strict=True):
            text = tokenizer.decode(source)
            assert tokenizer.decode(labels).split() == reverse(text.split())
            assert zlib.crc32(text.encode()) % 100 < 90  # the part of the training text
            seen.append(text)
    assert len(set(seen)) > 0.99 * len(seen)
    np.testing.assert_array_equal(examples.batch(7)["source"], examples.batch(7)["source"])
    assert examples.batches_per_epoch == 1000 / 32
    assert len(list(examples.one_pass())) == 31


@pytest.mark.any_backend
def test_fresh_is_refused_where_it_has_no_meaning():
    with pytest.raises(InputError, match="fresh is for the built-in corpus"):
        DataConfig(fresh=True, corpus="phrasebook")
    config = Config(data=DataConfig(fresh=True, corpus="reverse"), tokenizer=TokenizerConfig(kind="bpe"))
    with pytest.raises(InputError, match="needs tokenizer"):
        find_task("translate").checked(config)
