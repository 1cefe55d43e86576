"""Learning rate schedules, and gradients that are accumulated."""

import keras
import numpy as np
import pytest

from heedful import backend
from heedful.config import TrainConfig
from heedful.layers import TokenEmbedding
from heedful.training.objective import Objective
from heedful.training.optimizer import adam, training_optimizer
from heedful.training.schedule import Schedule, training_schedule


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
    linear = Schedule("linear", 2.0, 10, updates=110, final=0.5)
    assert [float(linear(u)) for u in (4, 9, 34, 109)] == pytest.approx([1.0, 2.0, 1.625, 0.5], rel=1e-5)
    wsd = Schedule("wsd", 2.0, 10, updates=100, decay_share=0.2)
    assert [float(wsd(u)) for u in (4, 9, 79, 89, 99)] == pytest.approx([1.0, 2.0, 2.0, 1.0, 0.0], abs=1e-6)


def paced(**options):
    """Return a schedule whose lengths and pace are variables of an optimizer."""
    schedule = Schedule(**options)
    optimizer = keras.optimizers.SGD(schedule)
    optimizer.build([keras.Variable(np.zeros(1, np.float32))])
    schedule.follow(optimizer)
    return schedule


def rate_program(schedule):
    """Return the learning rate as a function of variables and step, and the values of the variables."""
    variables = list(schedule.variables.values())

    def rate(values, step):
        with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
            return schedule(step)

    return rate, [variable.value for variable in variables]


@pytest.mark.skipif(backend.NAME != "jax", reason="compiles with JAX")
@pytest.mark.parametrize("kind", ["cosine", "linear", "wsd"])
def test_lengths_in_variables_change_no_learning_rate(kind, optimized):
    """Guards the exact resuming of trainings whose lengths were constants of the compiled update."""
    import jax

    for warmup, updates in ((0, 50), (7, 687), (137, 4061), (333, 100_003)):
        options = {"kind": kind, "peak": 3e-3, "warmup_updates": warmup, "updates": updates, "final": 1e-5}
        steps = np.unique(np.linspace(0, updates + 3, 50).astype(np.int32))
        rate, values = rate_program(paced(**options))
        constant, variable = jax.jit(Schedule(**options)), jax.jit(rate)
        assert [float(variable(values, step)) for step in steps] == [float(constant(step)) for step in steps]


@pytest.mark.skipif(backend.NAME != "jax", reason="compiles with JAX")
@pytest.mark.parametrize("kind", ["cosine", "linear", "wsd"])
def test_paced_schedules_of_other_lengths_share_a_program(kind):
    """Guards against updates that are compiled once to plan a training and once to train, and anew for each plan."""
    import jax

    programs = set()
    for warmup, updates in ((10, 1000), (100, 687)):
        rate, values = rate_program(paced(kind=kind, warmup_updates=warmup, updates=updates))
        programs.add(str(jax.make_jaxpr(rate)(values, np.int32(5))))
    assert len(programs) == 1


class Linear(keras.Model):
    """A minimal model for an `Objective`."""

    def __init__(self):
        super().__init__(name="linear")
        self.output_projection = TokenEmbedding(7, 3, name="table")
        self.output_projection.build((None, None))
        self.built = True

    def features(self, batch, training=None):
        return batch["x"]


@pytest.mark.any_backend
def test_adam_follows_its_settings(numpy):
    train = TrainConfig(beta_1=0.8, beta_2=0.95, epsilon=1e-3, schedule="constant", warmup_updates=0, learning_rate=0.1)
    optimizer = training_optimizer(train, training_schedule(train, 6))
    weight = keras.Variable(np.zeros(1, "float32"))
    first = second = want = 0.0
    for update, gradient in enumerate((2.0, -1.0, 0.5), 1):
        optimizer.apply([keras.ops.convert_to_tensor([gradient])], [weight])
        first, second = 0.8 * first + 0.2 * gradient, 0.95 * second + 0.05 * gradient**2
        corrected = 0.1 * (1 - 0.95**update) ** 0.5 / (1 - 0.8**update)  # Kingma and Ba 2015, end of section 2
        want -= corrected * first / (second**0.5 + 1e-3)
        assert numpy(weight)[0] == pytest.approx(want, rel=1e-5)


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


@pytest.mark.any_backend
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_rate_factors_scale_the_step_and_the_decay_of_a_weight(normal, decay):
    start, gradient = normal(3, 4), normal(3, 4)
    steps = {}
    for factor in (None, 0.0, 0.5):
        weight = keras.Variable(start, name="kernel")
        factors = None if factor is None else {weight.path: factor}
        optimizer = adam(0.1, weight_decay=decay, rate_factors=factors)
        for _ in range(2):
            optimizer.apply([gradient], [weight])
        steps[factor] = backend.to_numpy(weight) - start
    np.testing.assert_array_equal(steps[0.0], 0)
    if decay:
        assert np.abs(steps[0.5]).max() < np.abs(steps[None]).max()
    else:
        np.testing.assert_allclose(steps[0.5], steps[None] / 2, rtol=1e-4, atol=1e-6)
