"""Metrics over tokens: right for any batching, with padding left out."""

import keras
import numpy as np
import pytest
from keras import ops

import heedful
from heedful import backend
from heedful.training.loss import TokenCrossentropy, projected_crossentropy
from heedful.training.metrics import Perplexity, TokenAccuracy


def by_hand(logits, targets, weights, smoothing):
    """Compute the loss by its definition, with the smoothed distribution written out."""
    vocab_size = logits.shape[-1]
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    wanted = (1 - smoothing) * np.eye(vocab_size)[targets] + smoothing / vocab_size
    return (-(wanted * log_probs).sum(-1) * weights).sum()


@pytest.fixture
def case(rng):
    logits = rng.normal(size=(3, 7, 11))
    targets = rng.integers(0, 11, (3, 7))
    weights = (rng.random((3, 7)) < 0.6).astype("float32")
    return logits, targets, weights


def test_metrics_divide_by_the_count_of_all_batches(case):
    """One right token of two in a short batch, none of nine in a long one: 1/11, not the mean of 1/2 and 0."""
    accuracy = TokenAccuracy()
    logits = np.zeros((1, 9, 3), "float32")
    logits[..., 1] = 1
    accuracy.update_state(np.array([[1, 2]]), logits[:, :2])
    accuracy.update_state(np.full((1, 9), 2), logits)
    assert float(accuracy.result()) == pytest.approx(1 / 11)


def test_metrics_are_the_same_for_any_batching(case):
    logits, targets, weights = case
    for make in (TokenAccuracy, Perplexity):
        whole, rows = make(), make()
        whole.update_state(targets, logits, weights)
        for row in range(3):
            rows.update_state(targets[row : row + 1], logits[row : row + 1], weights[row : row + 1])
        assert float(whole.result()) == pytest.approx(float(rows.result()), rel=1e-5)
    assert float(whole.result()) == pytest.approx(
        np.exp(by_hand(logits, targets, weights, 0) / weights.sum()), rel=1e-4
    )


@pytest.mark.parametrize("where", ["metrics", "weighted_metrics"])
def test_metrics_ignore_padding_by_the_mask_of_the_logits(where, rng, numpy):
    """Guards `metrics=`: heedful 0.1.0 counted padding there, and gave 0.625 where Keras' accuracy gives 1."""
    model = heedful.CausalLM(11, num_layers=1, d_model=6, num_heads=2, d_ff=8, dropout=0.0)
    ids = rng.integers(3, 11, (3, 7))
    ids[0, 2:] = ids[1, 5:] = 0
    logits = numpy(model({"ids": ids}))
    labels = np.where(ids > 0, logits.argmax(-1), 0)  # right at every token, and wrong at padding
    model.compile("sgd", TokenCrossentropy(), **{where: [TokenAccuracy("ours"), Perplexity(), "accuracy"]})
    found = model.evaluate({"ids": ids}, labels, batch_size=2, verbose=0, return_dict=True)
    assert found["ours"] == 1
    perplexity = np.exp(by_hand(logits.astype("float64"), labels, ids > 0, 0) / (ids > 0).sum())
    assert found["perplexity"] == pytest.approx(perplexity, rel=1e-5)


@pytest.mark.parametrize("where", ["metrics", "weighted_metrics"])
def test_metrics_ignore_padding_in_fit_as_in_evaluate(where, rng):
    """Guards training metrics on JAX, whose gradient removes the mask from the logits: they counted padding."""
    model = heedful.Transformer(11, 11, num_layers=1, d_model=6, num_heads=2, d_ff=8, dropout=0.0)
    ids = rng.integers(3, 11, (4, 7)).astype("int32")  # of int64, Keras warns on JAX
    ids[0, 2:] = ids[1:, 5:] = 0
    plain = keras.Sequential([keras.layers.Embedding(11, 6), keras.layers.Dense(11)])
    for each, inputs in ((model, {"source": ids, "target": ids}), (plain, ids)):
        chosen = [TokenAccuracy("ours"), Perplexity(), *([] if each is plain else ["accuracy"])]
        each.compile(keras.optimizers.SGD(0.0), TokenCrossentropy(), **{where: chosen})
        fitted = each.fit(inputs, ids, batch_size=4, verbose=0).history
        evaluated = each.evaluate(inputs, ids, batch_size=4, verbose=0, return_dict=True)
        for name, value in evaluated.items():
            assert fitted[name][0] == pytest.approx(value, rel=1e-5), name
        assert fitted["perplexity"][0] == pytest.approx(np.exp(fitted["loss"][0]), rel=1e-4)


def test_label_0_counts_if_nothing_is_ignored(rng):
    logits, labels = rng.normal(size=(2, 3, 4)).astype("float32"), np.array([[0, 1, 2], [0, 0, 3]])
    texts = np.array([[1.0], [2.0]], "float32")
    both = (
        float(TokenCrossentropy(ignored_label=label)(labels, logits, weights))
        for label, weights in ((None, texts.repeat(3, 1)), (0, texts[:, 0]))
    )
    losses = np.logaddexp.reduce(logits, axis=-1) - np.take_along_axis(logits, labels[..., None], -1)[..., 0]
    for found, weights in zip(both, (np.ones((2, 3)), labels != 0), strict=True):
        weights = weights * texts
        assert found == pytest.approx((losses * weights).sum() / weights.sum(), rel=1e-5)


@pytest.mark.skipif(backend.NAME == "jax", reason="products of bfloat16 are float32 there")
def test_accuracy_takes_the_first_of_equal_logits():
    """Rounded logits can tie, and decoding would write the first of them."""
    features, table = ops.ones((1, 2, 3), "bfloat16"), ops.ones((5, 3), "bfloat16")
    right = projected_crossentropy(features, table, np.array([[0, 4]]), np.ones((1, 2), np.float32))[2]
    assert float(right) == 1
