"""Two passes over a text, token cut-off, skipped sublayers, averages and optimizers: values, and exact resuming."""

import shutil

import keras
import numpy as np
import pytest
from keras import ops

import heedful
from heedful import workflows
from heedful.config import Config, TrainConfig
from heedful.core.errors import InputError
from heedful.core.special_tokens import START_ID
from heedful.core.storage import read_checked
from heedful.layers.dropout import TextDropout, TokenDropout
from heedful.runs.run import WEIGHTS, Run
from heedful.training.consistency import Consistency
from heedful.training.loss import TokenCrossentropy, label_set_crossentropy, projected_crossentropy
from heedful.training.objective import Objective, batch_sums, training_objective, with_update_tokens
from heedful.training.optimizer import Muon, averaged_weights, first_moments, training_optimizer
from heedful.training.schedule import training_schedule
from tests.conftest import change, fast, quiet
from tests.gradients import gradients

R_DROP, SIM_CUT = Consistency("r_drop", 5.0), Consistency("sim_cut", 3.0)
SHARES = {"r_drop": (0.5, 0.5), "sim_cut": (1.0, 0.0)}
SCHEDULE_FREE_TABLE = {"optimizer": "schedule_free", "schedule": "constant"}
SIZES = {"num_layers": 1, "d_model": 12, "num_heads": 2, "d_ff": 10}


def divergence(log_p, log_q):
    return ops.sum(ops.exp(log_p) * (log_p - log_q), axis=-1)


@pytest.mark.parametrize("chunk", [7, 1000])
@pytest.mark.parametrize("kind", [R_DROP, SIM_CUT], ids=lambda kind: kind.kind)
def test_the_loss_of_two_passes_and_its_gradients_equal_the_papers_equations(kind, normal, rng, chunk):
    features, table = normal(6, 7, 5), normal(11, 5)
    targets = np.repeat(rng.integers(0, 11, (3, 7)), 2, axis=0)
    counts = (rng.random((3, 7)) < 0.6).astype("float32")
    weights = np.repeat(counts, 2, axis=0) * np.tile(np.array(SHARES[kind.kind], "float32"), 3)[:, None]

    def written_out(features, table):
        logits = ops.matmul(features, ops.transpose(table))
        losses = TokenCrossentropy(0.1, reduction=None, ignored_label=None)(targets, logits)
        log_p, log_q = (ops.log_softmax(logits)[start::2] for start in (0, 1))
        added = divergence(log_p, log_q)
        if kind is R_DROP:  # half of equation 4, since the two cross-entropies are averaged
            added = (added + divergence(log_q, log_p)) / 4
        counted = ops.convert_to_tensor(counts)
        return ops.sum(losses * ops.convert_to_tensor(weights)) + kind.weight * ops.sum(counted * added)

    def ours(features, table):
        return projected_crossentropy(features, table, targets, weights, 0.1, chunk, consistency=kind)[0]

    want, got = gradients(written_out, features, table), gradients(ours, features, table)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5)
    for one, other in zip(got[1], want[1], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


@pytest.mark.parametrize("kind", [R_DROP, SIM_CUT], ids=lambda kind: kind.kind)
def test_the_divergence_of_label_sets_equals_that_of_yes_and_no(kind, normal, numpy):
    logits, labels = normal(4, 3), np.ones((4, 3), "float32")
    weights = np.tile(np.array(SHARES[kind.kind], "float32"), 2)
    p = 1 / (1 + np.exp(-logits.astype("float64").reshape(2, 2, 3)))
    both = np.stack([p, 1 - p], -1)
    forward, backward = (
        (both[:, one] * np.log(both[:, one] / both[:, other])).sum() for one, other in ((0, 1), (1, 0))
    )
    want = 5 * (forward + backward) / 4 if kind is R_DROP else 3 * forward
    plain = numpy(label_set_crossentropy(logits, labels, weights))
    got = numpy(label_set_crossentropy(logits, labels, weights, consistency=kind))
    assert got[0] - plain[0] == pytest.approx(want, rel=1e-4)
    np.testing.assert_array_equal(got[1:], plain[1:])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [SIM_CUT, R_DROP], ids=["sim_cut", "r_drop"])
def test_two_equal_passes_add_nothing(kind, rng, numpy):
    """Guards the doubling of every array of a batch, and the shares of the two passes."""
    model = heedful.Transformer(11, 11, dropout=0.0, **SIZES)
    ids = rng.integers(4, 11, (3, 5)).astype("int32")
    weights = (rng.random((3, 5)) < 0.7).astype("float32")
    [batch] = with_update_tokens([{"source": ids, "target": ids, "labels": ids, "weights": weights}])
    once, twice = (numpy(batch_sums(model, batch, 0.1, True, each)) for each in (None, kind))
    np.testing.assert_allclose(twice, once, rtol=1e-5)


def test_tokens_are_cut_in_every_second_row_only(numpy):
    layer = TokenDropout(0.3, seed=5)
    x = np.ones((40, 25, 6), "float32")
    cut = numpy(layer(x, training=True)).min(-1)
    assert set(np.unique(cut)) == {0.0, 1.0}
    assert 0.25 < (cut == 0).mean() < 0.35
    np.testing.assert_array_equal(numpy(layer(x, training=False)), x)
    layer.spares_first_of_pairs = True
    cut = numpy(layer(x, training=True)).min(-1)
    assert cut[0::2].all()
    assert 0.2 < (cut[1::2] == 0).mean() < 0.4


def test_whole_texts_are_skipped(numpy):
    kept = numpy(TextDropout(0.25, seed=5)(np.ones((400, 3, 2), "float32"), training=True))
    assert (kept.min((1, 2)) == kept.max((1, 2))).all()
    assert {round(float(value), 4) for value in np.unique(kept)} == {0.0, 1.3333}
    assert 0.2 < (kept[:, 0, 0] == 0).mean() < 0.3


@pytest.mark.any_backend
def test_a_skipped_sublayer_leaves_a_text_as_it_is(normal, numpy):
    block = heedful.layers.EncoderBlock(12, 2, 10, norm_position="pre", dropout=0.0, layer_dropout=0.5)
    x = normal(64, 3, 12)
    same = [np.array_equal(one, other) for one, other in zip(numpy(block(x, training=True)), x, strict=True)]
    assert 0.1 < np.mean(same) < 0.45  # both sublayers: a quarter
    assert not np.array_equal(numpy(block(x, training=False))[0], x[0])


@pytest.mark.any_backend
@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["muon", "adam"])
def test_the_start_vector_stays_zero(config, tmp_path, optimizer):
    settings = ["--model.start_vector", "zero", "--train.optimizer", optimizer, "--train.moving_average", "0.8",
                "--train.weight_decay", "0.1"]  # fmt: skip
    run = workflows.train(change(config, *settings), tmp_path / "run", quiet)
    table = read_checked(run.weights_path())[0]["target_embedding/embeddings"]
    assert not table[START_ID].any()
    assert np.abs(table).sum(1).astype(bool).sum() == len(table) - 1


REGULARISED = [
    ["--train.consistency", "sim_cut", "--model.token_dropout", "0.1", "--train.moving_average", "0.9",
     "--train.schedule", "linear", "--model.decoder_layers", "1"],
    ["--train.consistency", "r_drop", "--model.layer_dropout", "0.1", "--train.optimizer", "muon",
     "--train.schedule", "wsd", "--train.accumulate_batches", "2", "--train.moving_average", "0.8"],
]  # fmt: skip
SCHEDULE_FREE = ["--train.optimizer", "schedule_free", "--train.schedule", "constant", "--train.warmup_updates", "2",
                 "--train.weight_decay", "0.1"]  # fmt: skip


@pytest.mark.any_backend
@pytest.mark.parametrize("settings", fast(REGULARISED[::-1], 1), ids=["r_drop", "sim_cut"])
def test_a_regularised_training_resumes_exactly_and_keeps_the_averages(config, tmp_path, settings):
    config = change(config, "--train.learning_rate", "0.001", *settings)
    whole = workflows.train(config, tmp_path / "whole", quiet)
    shutil.copytree(whole.path, tmp_path / "again")
    stopped = Run.open(tmp_path / "again")
    for state in stopped.checkpoints.paths()[-1:]:
        state.unlink()  # as if it was killed after update 3
    resumed = workflows.resume(stopped.path, quiet)
    one, other = (run.checkpoints.read_last()[0] for run in (whole, resumed))
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)
    best = whole.checkpoints.read_last()[1]["best_update"]
    state = next(path for path in whole.checkpoints.paths() if int(path.stem) == best)
    averages = [array for name, array in whole.checkpoints.read(state)[0].items() if name.endswith("_average")]
    kept = read_checked(whole.path / WEIGHTS)[0].values()
    described = [sorted((array.shape, array.tobytes()) for array in arrays) for arrays in (averages, kept)]
    assert described[0] == described[1]


@pytest.mark.any_backend
@pytest.mark.parametrize("batches", [1, 2])
def test_the_schedule_free_optimizer_follows_algorithm_1(numpy, normal, batches):
    """The sequences x, y and z of the paper, written out; the model holds y, and x is validated."""
    rate, decay, warmup, beta_1, beta_2, epsilon = 0.1, 0.05, 3, 0.9, 0.98, 1e-9
    train = TrainConfig(
        optimizer="schedule_free", schedule="constant", learning_rate=rate, warmup_updates=warmup, weight_decay=decay,
        accumulate_batches=batches,
    )  # fmt: skip
    optimizer = training_optimizer(train, training_schedule(train, 6))
    weight = keras.Variable(normal(3, 2), name="kernel")
    x = y = z = numpy(weight).astype("float64")
    velocity, total = np.zeros_like(z), 0.0
    for update in range(1, 7):
        gradients_of_update = normal(batches, 3, 2)
        for gradient in gradients_of_update:
            optimizer.apply([ops.convert_to_tensor(gradient)], [weight])
        gradient = gradients_of_update.mean(0).astype("float64")
        velocity = beta_2 * velocity + (1 - beta_2) * gradient**2
        step = rate * min(update / warmup, 1)
        z = z - step * (gradient / (np.sqrt(velocity / (1 - beta_2**update)) + epsilon) + decay * y)
        total += step**2
        x = x + step**2 / total * (z - x)
        y = beta_1 * x + (1 - beta_1) * z
        [(trained, average)] = averaged_weights(optimizer)
        assert trained is weight
        np.testing.assert_allclose(numpy(weight), y, atol=2e-6)
        np.testing.assert_allclose(numpy(average), x, atol=2e-6)
        [moment] = first_moments(optimizer)
        np.testing.assert_allclose(numpy(moment.variable), gradient, atol=1e-6)


@pytest.mark.any_backend
@pytest.mark.slow
def test_a_schedule_free_training_keeps_the_average_and_resumes_exactly(config, tmp_path):
    whole = workflows.train(change(config, "--train.learning_rate", "0.001", *SCHEDULE_FREE), tmp_path / "whole", quiet)
    stopped = Run.open(shutil.copytree(whole.path, tmp_path / "again"))
    stopped.checkpoints.paths()[-1].unlink()  # as if it was killed after update 3
    resumed = workflows.resume(stopped.path, quiet)
    one, other = (run.checkpoints.read_last()[0] for run in (whole, resumed))
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)
    kept, best = read_checked(whole.path / WEIGHTS)[0], whole.checkpoints.read_last()[1]["best_update"]
    state = whole.checkpoints.read(next(path for path in whole.checkpoints.paths() if int(path.stem) == best))[0]
    trained = {name.split("/", 2)[2]: array for name, array in state.items() if name.startswith("model/")}
    assert kept.keys() <= trained.keys()
    assert not any(np.array_equal(kept[name], trained[name]) for name in kept if name.endswith("/kernel"))


@pytest.mark.any_backend
def test_validation_sees_the_averages_and_training_goes_on_with_the_weights(numpy):
    train = TrainConfig(moving_average=0.5, schedule="constant", warmup_updates=0, learning_rate=0.1)
    optimizer = training_optimizer(train, training_schedule(train, 6))
    weight = keras.Variable(np.zeros(1, "float32"))
    average = None
    for _ in range(4):
        optimizer.apply([ops.convert_to_tensor([1.0])], [weight])
        now = numpy(weight)[0]
        average = now if average is None else 0.5 * average + 0.5 * now
        [(trained, averaged)] = averaged_weights(optimizer)
        assert trained is weight
        assert numpy(averaged)[0] == pytest.approx(average, rel=1e-6)
    optimizer.finalize_variable_values([weight])
    assert numpy(weight)[0] == now


def fused_parts(path, matrix, width):
    """Return the projections that one kernel holds, if keys and values have one head of that width."""
    number = 2 if "/query_key_value/" in path or "/key_value/" in path else 0
    ends = [matrix.shape[1] - width * count for count in range(number, 0, -1)]
    return [part for part in np.split(matrix, ends, axis=1) if part.size]


@pytest.mark.parametrize("shape", [(8, 12), (8, 13), (40, 8), (8, 8)])
@pytest.mark.parametrize("power", [0, 1, 2])
def test_muon_orthogonalises_through_the_gram_matrix_with_the_same_result(numpy, normal, shape, power):
    """Rounding alone may differ from Keras' function, also if singular values are very unequal.

    (8, 12) is the first shape that is computed so.
    """
    left, _, right = np.linalg.svd(normal(*shape), full_matrices=False)
    values = np.arange(1, 9, dtype="float32") ** -power
    matrix, optimizer = ops.convert_to_tensor((left * values) @ right), Muon(0.1)
    expected = numpy(keras.optimizers.Muon(0.1).zeropower_via_newtonschulz5(matrix, 5))
    np.testing.assert_allclose(numpy(optimizer.zeropower_via_newtonschulz5(matrix, 5)), expected, atol=1e-4)


def test_muon_updates_matrices_orthogonally_and_the_rest_as_adam(numpy, normal):
    """The update of a matrix has singular values near 1, times its scale; first moments give back the gradient."""
    model = heedful.Transformer(11, 11, tie="none", num_kv_heads=1, **SIZES)
    width = SIZES["d_model"] // SIZES["num_heads"]
    train = TrainConfig(optimizer="muon", schedule="constant", warmup_updates=0, learning_rate=0.01)
    objective = training_objective(model, train)
    optimizer, weights = objective.optimizer, objective.trainable_variables
    optimizer.build(weights)
    before = [numpy(weight) for weight in weights]
    found = [normal(*weight.shape) for weight in weights]
    optimizer.apply([ops.convert_to_tensor(gradient) for gradient in found], weights)
    by_muon = [velocity is None for velocity in optimizer.adam_velocities]
    assert 0 < sum(by_muon) < len(weights)
    for weight, old, matrix, moment, gradient in zip(
        weights, before, by_muon, first_moments(optimizer), found, strict=True
    ):
        change_of = numpy(weight) - old
        assert matrix == (len(weight.shape) == 2 and "embeddings" not in weight.path), weight.path
        if matrix:
            changed_parts, gradients_of_parts = (fused_parts(weight.path, one, width) for one in (change_of, gradient))
            for part, given in zip(changed_parts, gradients_of_parts, strict=True):
                left, values, right = np.linalg.svd(given, full_matrices=False)
                changes = np.diag(left.T @ part @ right.T) / (-0.01 * 0.2 * max(part.shape) ** 0.5)
                lifted = values > 0.1 * values.max()  # five iterations do not lift the smallest ones
                assert ((changes[lifted] > 0.5) & (changes[lifted] < 1.3)).all(), weight.path
        else:
            np.testing.assert_allclose(np.abs(change_of), 0.01, rtol=1e-3)
        np.testing.assert_allclose(numpy(moment.variable) / moment.factor, gradient, rtol=1e-5)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train": {"consistency": "sim_cut"}}, "needs model.token_dropout"),
        ({"train": {"consistency": "r_drop"}, "model": {"dropout": 0.0}}, "needs dropout"),
        ({"train": {"optimizer": "muon", "init_from": "run", "rate_factors": ["*=0.1"]}}, "one learning rate"),
        ({"train": {"moving_average": 1.0}}, "moving_average"),
        ({"train": {"optimizer": "schedule_free"}}, "set train.schedule = 'constant'"),
        ({"train": SCHEDULE_FREE_TABLE | {"moving_average": 0.9}}, "leave out train.moving_average"),
        ({"train": SCHEDULE_FREE_TABLE | {"beta_1": 0.0}}, "needs train.beta_1 above 0"),
        ({"task": "generate", "model": {"size": "student"}}, "set model.num_layers"),
        ({"task": "fill", "model": {"decoder_layers": 3}}, "set model.num_layers"),
        ({"model": {"encoder_layers": 0}}, "encoder_layers"),
    ],
)
def test_settings_that_make_no_sense_together_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        Config.from_table(settings, "recipe")


@pytest.mark.any_backend
def test_named_sizes_set_both_depths(numpy):
    config = Config.from_table({"model": {"size": "student", "d_model": 12, "num_heads": 2}}, "recipe")
    assert config.model.depths == {"encoder": 6, "decoder": 2}
    model = heedful.Transformer(11, 11, encoder_layers=3, decoder_layers=1, **SIZES)
    assert [len(side.blocks) for side in (model.encoder, model.decoder)] == [3, 1]
    with pytest.raises(ValueError, match="set num_layers"):
        heedful.CausalLM(11, decoder_layers=2, **SIZES)


@pytest.mark.any_backend
def test_an_objective_with_two_passes_is_saved_and_loaded(tmp_path):
    model = heedful.CausalLM(11, token_dropout=0.1, **SIZES)
    again = Objective.from_config(Objective(model, 0.1, 2, SIM_CUT).get_config())
    assert again.consistency == SIM_CUT
    assert again.model.text_input.token_dropout.spares_first_of_pairs
