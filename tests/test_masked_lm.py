"""Encoder-only models: attention to both sides, filling gaps, sentence vectors and classes."""

import keras
import numpy as np
import pytest
from keras import ops

import heedful
from heedful.core.errors import InputError
from heedful.core.special_tokens import END_ID, START_ID
from heedful.data.tokenizer import Tokenizer
from heedful.inference import text_classifier, text_embedder
from heedful.inference.mask_filler import MaskFiller
from heedful.inference.text_classifier import TextClassifier
from heedful.inference.text_embedder import TextEmbedder
from heedful.training.objective import batch_sums
from tests.conftest import fast

SIZES = {"num_layers": 2, "d_model": 24, "num_heads": 6, "d_ff": 20, "max_length": 29}
OPTIONS = [
    {},
    {"positions": "learned", "activation": "gelu", "embedding_norm": True, "embedding_scale": False},
    {
        "norm_position": "pre",
        "positions": "rotary",
        "norm": "rms",
        "bias": False,
        "activation": "swiglu",
        "tie": "none",
    },
]


@pytest.fixture
def ids(rng):
    ids = rng.integers(4, 31, (5, 11))
    ids[:, 0] = 2
    ids[2, 6:] = 0
    return ids


@pytest.mark.parametrize("options", fast(OPTIONS, 1))
def test_padding_and_batch_neighbours_do_not_change_the_logits(options, ids, numpy):
    model = heedful.MaskedLM(31, **SIZES, **options)
    logits = numpy(model(ids))
    assert logits.shape == (5, 11, 31)
    np.testing.assert_allclose(numpy(model(ids[2:3, :6]))[0], logits[2, :6], atol=1e-5)
    np.testing.assert_allclose(numpy(model(np.pad(ids, ((0, 0), (0, 3)))))[:, :11], logits, atol=1e-5)
    changed = ids.copy()
    changed[:, 5] = np.where(changed[:, 5] == 4, 5, 4)
    assert np.abs(numpy(model(changed))[:, 1] - logits[:, 1]).max() > 1e-4  # later tokens are attended to


def test_loss_equals_that_of_the_full_logits_at_masked_positions(ids, numpy):
    """Guards the shortcut of projecting only the masked positions."""
    model = heedful.MaskedLM(31, **SIZES, output_bias=True)
    places = np.array([[1, 3], [2, 0], [5, 4], [10, 9], [7, 7]])
    labels = np.take_along_axis(ids, places, axis=1)
    weights = np.array([[1, 1], [1, 0], [1, 1], [1, 1], [1, 0]], "float32")
    logits = numpy(model(ids)).astype("float64")
    log_probs = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
    want = sum(-log_probs[row, places[row, i], labels[row, i]] * weights[row, i] for row in range(5) for i in range(2))
    sums = numpy(batch_sums(model, {"ids": ids, "places": places, "labels": labels, "weights": weights}))
    np.testing.assert_allclose(sums[[1, 3]], [want, 8], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("make", [lambda: heedful.MaskedLM(31, **SIZES), lambda: heedful.Classifier(31, 3, **SIZES)])
def test_a_fitted_model_predicts_the_same_after_loading(make, ids, tmp_path):
    model = make()
    labels = ids if isinstance(model, heedful.MaskedLM) else np.arange(5) % 3
    model.compile(keras.optimizers.Adam(1e-2), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    history = model.fit(ids, labels, epochs=30, batch_size=5, verbose=0).history["loss"]
    assert history[-1] < history[0] / 2
    before = model.predict(ids, verbose=0)
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(keras.saving.load_model(tmp_path / "model.keras").predict(ids, verbose=0), before)


@pytest.mark.parametrize("pooling", ["mean", "first", "max"])
def test_classes_do_not_depend_on_the_batch(pooling, tokenizer, numpy):
    model = heedful.Classifier(len(tokenizer), 3, pooling=pooling, **SIZES)
    labeller = TextClassifier(model, tokenizer, ("a", "b", "c"), 29)
    texts = ["o gato bebe", "a vaca", "", "o rei vê a vaca o rei come pão", "a menina"]
    together = labeller.probabilities(texts)
    for text, row in zip(texts, together, strict=True):
        np.testing.assert_allclose(labeller.probabilities([text])[0], row, atol=1e-5)
        assert labeller.classify(text)[0] == labeller.labels[row.argmax()]
    np.testing.assert_allclose(together.sum(1), 1, atol=1e-5)


@pytest.mark.any_backend
def test_warnings_count_all_texts(tokenizer, monkeypatch):
    """Guards against counting from 1 again in each window of texts."""
    monkeypatch.setattr(text_classifier, "TEXTS_AT_ONCE", 2)
    monkeypatch.setattr(text_embedder, "TEXTS_AT_ONCE", 2)
    said, long = [], "o gato " * 20
    model = heedful.Classifier(len(tokenizer), 2, **SIZES)
    TextClassifier(model, tokenizer, ("a", "b"), 7).predict(["o", "a", "o", long], said.append)
    TextEmbedder(heedful.MaskedLM(len(tokenizer), **SIZES), tokenizer).predict(["o", "a", long], said.append)
    assert [message.split(" has ")[0] for message in said] == ["text 4", "text 3"]


def test_training_leaves_a_frozen_encoder_unchanged(ids):
    """Checks bitwise, with momentum and weight decay; the head learns, and the encoder's dropout is off."""
    model = heedful.Classifier(31, 3, **SIZES, dropout=0.5)
    model.freeze()
    frozen = {weight.path: np.array(weight) for weight in model.non_trainable_weights}
    head = np.array(model.output_projection.embeddings)
    assert len(model.trainable_weights) == 2
    model.compile(keras.optimizers.AdamW(1e-2), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(ids, np.arange(5) % 3, epochs=3, batch_size=5, verbose=0)
    for weight in model.non_trainable_weights:
        if "seed" not in weight.path:
            np.testing.assert_array_equal(np.array(weight), frozen[weight.path])
    assert np.abs(np.array(model.output_projection.embeddings) - head).max() > 1e-3
    first, second = (np.array(ops.convert_to_numpy(model.encode(ids, training=True))) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.fixture
def tokenizer(corpus):
    return Tokenizer.train((source for source, _ in corpus), "word", 60, mask=True)


@pytest.fixture
def filler(tokenizer):
    return MaskFiller(heedful.MaskedLM(len(tokenizer), **SIZES), tokenizer)


def test_fill_returns_the_likeliest_tokens_of_each_gap(filler, tokenizer, numpy):
    text, gaps = filler.fill("o [MASK] vê a [MASK]", count=3)
    ids = [2, *tokenizer.encode("o"), 4, *tokenizer.encode("vê a"), 4, 3]
    logits = numpy(filler.model(np.array([ids])))[0]
    words = text.split()
    assert (words[0], *words[2:4]) == ("o", "vê", "a")
    for place, candidates, word in zip((2, 5), gaps, (words[1], words[4]), strict=True):
        allowed = np.where(np.arange(len(tokenizer)) > 4, logits[place], -np.inf)
        assert [token for token, _ in candidates] == [tokenizer.lookup(i) for i in np.argsort(-allowed)[:3]]
        assert candidates[0][0] == word
        assert 0 < candidates[2][1] <= candidates[0][1] < 1


@pytest.mark.any_backend
def test_fill_keeps_the_space_before_a_gap_with_byte_level_tokens(corpus):
    tokenizer = Tokenizer.train((source for source, _ in corpus), "bpe", 300, mask=True)
    text, _ = MaskFiller(heedful.MaskedLM(len(tokenizer), **SIZES), tokenizer).fill("o [MASK] bebe")
    assert text.startswith("o")
    assert text.endswith(" bebe")
    tokenizer = Tokenizer.train((source for source, _ in corpus), "char", 60, mask=True)
    text, _ = MaskFiller(heedful.MaskedLM(len(tokenizer), **SIZES), tokenizer).fill("o [MASK]ato")
    assert text.startswith("o ")
    assert len(text) == len("o gato")


@pytest.mark.any_backend
@pytest.mark.parametrize("normalize", ["none", "nfc"])
def test_the_space_after_a_gap_is_read(corpus, normalize):
    """Guards against stripping it: a tokenizer that folds spaces strips both ends of a text."""
    texts = (source for source, _ in corpus)
    tokenizer = Tokenizer.train(texts, "bpe", 300, mask=True, normalize=normalize)
    filler = MaskFiller(heedful.MaskedLM(len(tokenizer), **SIZES), tokenizer)
    ids, gaps = filler._encode(["o", " bebe", "s"])
    expected = tokenizer.encode("o bebe")
    assert ids == [
        START_ID,
        *expected[:1],
        tokenizer.mask_id,
        *expected[1:],
        tokenizer.mask_id,
        *tokenizer.encode("s"),
        END_ID,
    ]
    assert gaps == [2, len(ids) - 3]


@pytest.mark.any_backend
def test_fill_leaves_the_rest_of_the_text_unchanged(corpus):
    """Guards against losing words that the vocabulary lacks, or capital letters."""
    for kind in ("word", "wordpiece"):
        lower = Tokenizer.train((source for source, _ in corpus), kind, 60, lowercase=True, mask=True)
        text, [candidates] = MaskFiller(heedful.MaskedLM(len(lower), **SIZES), lower).fill("O  GATO [MASK] 中, 😀")
        best = candidates[0][0]
        assert text == (f"O  GATO{best[2:]} 中, 😀" if best.startswith("##") else f"O  GATO {best} 中, 😀")


@pytest.mark.any_backend
@pytest.mark.parametrize("pooling", ["mean", "first", "max"])
def test_rows_that_fill_up_a_batch_change_no_score_of_classes(pooling, tokenizer, numpy):
    """Guards against the maximum of no token: infinite, and so the loss of the batch was no number."""
    model = heedful.Classifier(len(tokenizer), 3, pooling=pooling, **SIZES)
    ids = np.array([[2, 5, 6, 3], [2, 7, 3, 0], [0, 0, 0, 0]])
    batch = {"ids": ids, "labels": np.array([[1], [2], [0]]), "weights": np.array([[1.0], [1.0], [0.0]], np.float32)}
    full, part = (
        numpy(batch_sums(model, {name: ops.convert_to_tensor(array[:rows]) for name, array in batch.items()}))
        for rows in (3, 2)
    )
    assert np.isfinite(full).all()
    np.testing.assert_allclose(full, part, rtol=1e-5)


@pytest.mark.any_backend
@pytest.mark.parametrize("pooling", fast(["mean", "first", "max"], 1))
def test_vectors_do_not_depend_on_the_batch(filler, pooling, tokenizer, numpy):
    texts = ["o gato bebe", "a vaca", "o rei vê a vaca o rei come pão"]
    together = filler.embed(texts, pooling)
    assert together.shape == (3, 24)
    for text, vector in zip(texts, together, strict=True):
        np.testing.assert_allclose(filler.embed([text], pooling)[0], vector, atol=1e-5)
        vectors = numpy(filler.model.encode(np.array([[2, *tokenizer.encode(text), 3]])))[0]
        expected = {"mean": vectors.mean(0), "first": vectors[0], "max": vectors.max(0)}[pooling]
        np.testing.assert_allclose(expected, vector, atol=1e-5)


@pytest.mark.any_backend
def test_a_bfloat16_model_averages_its_vectors_in_float32(tokenizer):
    filler = MaskFiller(heedful.MaskedLM(len(tokenizer), dtype="mixed_bfloat16", **SIZES), tokenizer)
    vectors = filler.embed(["o gato bebe", "a vaca"])
    assert vectors.dtype == np.float32
    assert (vectors != ops.convert_to_numpy(ops.cast(ops.cast(vectors, "bfloat16"), "float32"))).any()


@pytest.mark.any_backend
def test_invalid_arguments_are_refused_with_a_reason(filler):
    with pytest.raises(InputError, match=r"write \[MASK\] where a token is missing"):
        filler.fill("o gato")
    with pytest.raises(InputError, match=r"count .0. must be from 1 to"):
        filler.fill("o [MASK]", count=0)
    with pytest.raises(InputError, match="The text has 42 tokens; the model reads up to 29"):
        filler.fill("[MASK]" + " o" * 39)
    with pytest.raises(InputError, match="Unknown pooling 'last'"):
        filler.embed(["o"], "last")
    with pytest.raises(ValueError, match="Unknown pooling 'last'"):
        heedful.Classifier(31, 3, pooling="last", **SIZES)
