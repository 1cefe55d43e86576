"""Loss, metrics and optimizer: values computed by hand, and equal results with any batching."""

import numpy as np
import pytest
from keras import ops

from heedful import backend
from heedful.layers.embeddings import NEVER_WRITTEN
from heedful.training.loss import TokenCrossentropy, projected_crossentropy, tokens_per_chunk
from tests.gradients import gradients


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


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_token_crossentropy_is_the_mean_over_real_tokens(case, smoothing):
    logits, targets, weights = case
    got = float(TokenCrossentropy(smoothing)(targets, logits.astype("float32"), sample_weight=weights))
    assert got == pytest.approx(by_hand(logits, targets, weights, smoothing) / weights.sum(), abs=1e-5)


def test_equal_logits_of_two_words_cost_log_2_with_smoothing():
    """The loss is log 2, smoothed or not."""
    assert float(TokenCrossentropy(0.3)(np.array([[1]]), np.zeros((1, 1, 2), "float32"))) == pytest.approx(np.log(2))


@pytest.mark.parametrize("chunk", [4, 5, 1000])
def test_the_loss_in_pieces_equals_the_plain_loss(normal, rng, chunk, numpy):
    """Loss, statistics and both gradients equal the plain ones, also when the last chunk is not full."""
    features, table = normal(3, 7, 5), normal(11, 5)
    targets, weights = rng.integers(0, 11, (3, 7)), (rng.random((3, 7)) < 0.6).astype("float32")

    def plain(features, table):
        logits = ops.matmul(features, ops.transpose(table))
        losses = TokenCrossentropy(0.1, reduction=None, ignored_label=None)(targets, logits)
        return ops.sum(losses * ops.convert_to_tensor(weights)) / 3

    def chunks(features, table):
        return projected_crossentropy(features, table, targets, weights, 0.1, chunk)[0] / 3

    want, got = gradients(plain, features, table), gradients(chunks, features, table)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5)
    for ours, theirs in zip(got[1], want[1], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    smoothed, nll, right, count = numpy(projected_crossentropy(features, table, targets, weights, 0.1, chunk))
    logits = features.astype("float64") @ table.T
    assert smoothed == pytest.approx(by_hand(logits, targets, weights, 0.1), rel=1e-5)
    assert nll == pytest.approx(by_hand(logits, targets, weights, 0.0), rel=1e-5)
    assert right == ((logits.argmax(-1) == targets) * weights).sum()
    assert count == weights.sum()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_loss_with_a_bias_has_the_right_gradients_in_every_dtype(normal, rng, dtype, optimized):
    """Features, table and bias are what bfloat16 holds exactly, so that only products and sums are rounded."""
    arrays = [np.round(8 * array) / 8 for array in (normal(2, 301, 32), normal(67, 32), normal(67))]
    targets, weights = rng.integers(0, 67, (2, 301)), (rng.random((2, 301)) < 0.6).astype("float32")

    def plain(features, table, bias):
        logits = ops.matmul(features, ops.transpose(table)) + bias
        losses = TokenCrossentropy(0.1, reduction=None, ignored_label=None)(targets, logits)
        return ops.sum(losses * ops.convert_to_tensor(weights)) / 361

    def chunks(features, table, bias):
        features, table = ops.cast(features, dtype), ops.cast(table, dtype)
        return projected_crossentropy(features, table, targets, weights, 0.1, 64, bias)[0] / 361

    (want, wanted), (got, found) = gradients(plain, *arrays), gradients(chunks, *arrays)
    error = {"float32": 1e-5, "bfloat16": 2**-6}[dtype]
    np.testing.assert_allclose(got, want, rtol=error)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=error * np.abs(theirs).max())


@pytest.mark.parametrize("chunk", [4, 1000])
def test_smoothing_leaves_out_tokens_that_are_never_written(normal, rng, chunk, numpy):
    """Guards training an imported model: in heedful 0.1.0 each such token added 0.1 / V of 1e9 to the loss."""
    features, table, bias = normal(3, 7, 5), normal(11, 5), normal(11)
    bias[[0, 4, 7]] = NEVER_WRITTEN
    kept = np.flatnonzero(bias > NEVER_WRITTEN)
    targets, weights = rng.integers(0, len(kept), (3, 7)), np.ones((3, 7), "float32")
    logits = features.astype("float64") @ table.T + bias
    want = by_hand(logits[..., kept], targets, weights, 0.1)
    assert want < 500

    def plain(features, table, bias):
        logits = ops.matmul(features, ops.transpose(table)) + bias
        return ops.sum(TokenCrossentropy(0.1, reduction=None, ignored_label=None)(kept[targets], logits))

    def chunks(features, table, bias):
        return projected_crossentropy(features, table, kept[targets], weights, 0.1, chunk, bias)[0]

    (one, wanted), (two, found) = (gradients(each, features, table, bias) for each in (plain, chunks))
    assert [float(one), float(two)] == pytest.approx([want, want], rel=1e-5)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert not np.asarray(found[2])[[0, 4, 7]].any()  # its bias stays as it is


@pytest.mark.parametrize("tokens", [1, 100, 128, 4096, 4097, 24_960, 100_000])
def test_chunks_of_an_accelerator_are_equally_large(tokens, monkeypatch):
    monkeypatch.setattr(backend, "runs_ahead", lambda: True)
    chunk = tokens_per_chunk(16_000, tokens)
    chunks = -(-tokens // chunk)
    assert chunk <= 4096
    assert chunk % 128 == 0
    assert chunks == -(-tokens // 4096)
    assert chunks * chunk - tokens < chunks * 128
