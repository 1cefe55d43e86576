"""Loss, metrics and optimizer: values computed by hand, and equal results with any batching."""

import keras
import numpy as np
import pytest
from keras import ops

import heedful
from heedful import backend
from heedful.layers import TokenEmbedding
from heedful.layers.embeddings import NEVER_WRITTEN
from heedful.training.loss import TokenCrossentropy, projected_crossentropy
from heedful.training.metrics import Perplexity, TokenAccuracy
from heedful.training.objective import Objective
from heedful.training.optimizer import Schedule, adam
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


@pytest.mark.parametrize("piece", [4, 5, 1000])
def test_the_loss_in_pieces_equals_the_plain_loss(normal, rng, piece, numpy):
    """Loss, statistics and both gradients equal the plain ones, also when the last piece is not full."""
    features, table = normal(3, 7, 5), normal(11, 5)
    targets, weights = rng.integers(0, 11, (3, 7)), (rng.random((3, 7)) < 0.6).astype("float32")

    def plain(features, table):
        losses = TokenCrossentropy(0.1, reduction=None)(targets, ops.matmul(features, ops.transpose(table)))
        return ops.sum(losses * ops.convert_to_tensor(weights)) / 3

    def pieces(features, table):
        return projected_crossentropy(features, table, targets, weights, 0.1, piece)[0] / 3

    want, got = gradients(plain, features, table), gradients(pieces, features, table)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5)
    for ours, theirs in zip(got[1], want[1], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    smoothed, nll, right, count = numpy(projected_crossentropy(features, table, targets, weights, 0.1, piece))
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
        losses = TokenCrossentropy(0.1, reduction=None)(targets, logits)
        return ops.sum(losses * ops.convert_to_tensor(weights)) / 361

    def pieces(features, table, bias):
        features, table = ops.cast(features, dtype), ops.cast(table, dtype)
        return projected_crossentropy(features, table, targets, weights, 0.1, 64, bias)[0] / 361

    (want, wanted), (got, found) = gradients(plain, *arrays), gradients(pieces, *arrays)
    error = {"float32": 1e-5, "bfloat16": 2**-6}[dtype]
    np.testing.assert_allclose(got, want, rtol=error)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=error * np.abs(theirs).max())


@pytest.mark.parametrize("piece", [4, 1000])
def test_smoothing_leaves_out_tokens_that_are_never_written(normal, rng, piece, numpy):
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
        return ops.sum(TokenCrossentropy(0.1, reduction=None)(kept[targets], logits))

    def pieces(features, table, bias):
        return projected_crossentropy(features, table, kept[targets], weights, 0.1, piece, bias)[0]

    (one, wanted), (two, found) = (gradients(each, features, table, bias) for each in (plain, pieces))
    assert [float(one), float(two)] == pytest.approx([want, want], rel=1e-5)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert not np.asarray(found[2])[[0, 4, 7]].any()  # its bias stays as it is


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


def test_schedules_match_values_computed_by_hand():
    paper = Schedule("paper", warmup_updates=4000, d_model=512)
    assert float(paper(3999)) == pytest.approx(512**-0.5 * 4000**-0.5, rel=1e-5)  # the peak
    assert float(paper(0)) == pytest.approx(512**-0.5 * 4000**-1.5, rel=1e-5)
    assert float(paper(15999)) == pytest.approx(float(paper(3999)) / 2, rel=1e-5)
    root = Schedule("inverse_square_root", 2.0, 10)
    assert [float(root(u)) for u in (0, 9, 39)] == pytest.approx([0.2, 2.0, 1.0])
    cosine = Schedule("cosine", 2.0, 10, updates=110, final=0.5)
    assert [float(cosine(u)) for u in (4, 9, 59, 109)] == pytest.approx([1.0, 2.0, 1.25, 0.5], rel=1e-5)
    assert float(Schedule("constant", 3.0, 0)(7)) == 3.0


class Linear(keras.Model):
    """A minimal model for an `Objective`."""

    def __init__(self):
        super().__init__(name="linear")
        self.output_projection = TokenEmbedding(7, 3, name="table")
        self.output_projection.build((None, None))
        self.built = True

    def features(self, batch, training=None):
        return batch["x"]


def test_accumulated_batches_equal_one_big_batch(normal, rng, numpy):
    """Micro-batches of unequal size: a mean of means would be off by far more than rounding."""
    x, labels = normal(4, 5, 3), rng.integers(0, 7, (4, 5))
    weights = np.ones((4, 5), "float32")
    weights[0, 1:] = 0  # the first two rows count 6 tokens, the last two 10

    def run(parts):
        keras.utils.set_random_seed(7)
        objective = Objective(Linear(), 0.1, len(parts))
        optimizer = adam(Schedule("paper", 1.0, 2, 16, micro_batches=len(parts)), micro_batches=len(parts))
        objective.compile(optimizer)
        tokens = np.array([weights.sum()], "float32")
        for _ in range(3):
            for part in parts:
                batch = {"x": x[part], "labels": labels[part], "weights": weights[part], "update_tokens": tokens}
                objective.train_on_batch(batch)
        assert int(numpy(optimizer.iterations)) == 3
        return numpy(objective.model.output_projection.embeddings)

    whole = run([slice(0, 4)])
    np.testing.assert_allclose(run([slice(0, 2), slice(2, 4)]), whole, atol=1e-5)


@pytest.mark.skipif(backend.NAME == "jax", reason="products of bfloat16 are float32 there")
def test_accuracy_takes_the_first_of_equal_logits():
    """Rounded logits can tie, and decoding would write the first of them."""
    features, table = ops.ones((1, 2, 3), "bfloat16"), ops.ones((5, 3), "bfloat16")
    right = projected_crossentropy(features, table, np.array([[0, 4]]), np.ones((1, 2), np.float32))[2]
    assert float(right) == 1
