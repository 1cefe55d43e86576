"""`keras.saving.load_model` restores a compiled model: config, weights, optimizer and dropout."""

import importlib
import pkgutil

import keras
import numpy as np
import pytest

import heedful
from heedful import backend
from heedful.layers.attention import MultiHeadAttention
from heedful.layers.blocks import DecoderBlock, EncoderBlock, Stack
from heedful.layers.dropout import Dropout, TextDropout, TokenDropout
from heedful.layers.embeddings import TokenEmbedding
from heedful.layers.feed_forward import FeedForward
from heedful.layers.input_embedding import InputEmbedding
from heedful.layers.mask_layers import CausalMask, PaddingMask
from heedful.layers.norms import LayerNorm, Norm, RMSNorm
from heedful.layers.positions import LearnedPositions, SinusoidalPositions
from heedful.layers.projection import Projection
from heedful.layers.residual import CausalSelfAttention, CrossAttention, Residual, SelfAttention
from heedful.layers.rounding import RoundingPolicy
from heedful.models import CausalLM, Classifier, MaskedLM, Transformer
from heedful.training.loss import TokenCrossentropy
from heedful.training.metrics import Perplexity, TokenAccuracy
from heedful.training.objective import Objective
from heedful.training.optimizer import Muon, adam
from heedful.training.schedule import SCHEDULES, Schedule
from tests.conftest import SLOW_ON_TENSORFLOW, fast

SIZES = {"num_layers": 1, "d_model": 6, "num_heads": 2, "d_ff": 10, "max_length": 13, "dropout": 0.2}
ABSTRACT = {
    "Base",
    "TextEncoder",
    "TokenMean",
    "_MaskedSum",
    "AttentionSublayer",
    "SameShape",
    "LoadableLayer",
}  # never saved
KERAS = (
    keras.layers.Layer, keras.losses.Loss, keras.metrics.Metric, keras.optimizers.Optimizer,
    keras.optimizers.schedules.LearningRateSchedule, keras.initializers.Initializer, keras.DTypePolicy,
)  # fmt: skip
LAYERS = {
    "Dropout": lambda: Dropout(0.3),
    "TextDropout": lambda: TextDropout(0.3),
    "TokenDropout": lambda: TokenDropout(0.3),
    "CausalMask": lambda: Residual(keras.Sequential([CausalMask(), MultiHeadAttention(6, 2)])),
    "CausalSelfAttention": lambda: CausalSelfAttention(6, 2, norm_position="pre", dropout=0.2, keep_weights=True),
    "FeedForward": lambda: FeedForward(6, 10, "swiglu", dropout=0.2),
    "LayerNorm": lambda: LayerNorm(epsilon=1e-6),
    "RMSNorm": lambda: RMSNorm(epsilon=1e-6),
    "LearnedPositions": lambda: LearnedPositions(6, 13),
    "MultiHeadAttention": lambda: MultiHeadAttention(
        6, 3, num_kv_heads=1, head_dim=4, rotary=True, qk_norm=True, dropout=0.2
    ),
    "Projection": lambda: Projection(6, activation="relu"),
    "Residual": lambda: Residual(keras.Sequential([FeedForward(6, 10), keras.layers.Dense(6)]), "pre", 0.2, "rms"),
    "SelfAttention": lambda: SelfAttention(6, 2, attention={"projections": "output", "causal": True}),
    "SinusoidalPositions": lambda: SinusoidalPositions(6, concatenated=True),
    "EncoderBlock": lambda: EncoderBlock(
        6, 2, 10, norm_position="pre", norm="rms", feed_forward_dropout=0.2, layer_dropout=0.2
    ),
    "Stack": lambda: Stack(EncoderBlock, 2, {"d_model": 6, "num_heads": 2, "d_ff": 10, "norm_position": "pre"}),
}
MODELS = {
    "Transformer": lambda dtype: Transformer(11, 11, dtype=dtype, tie="all", start_vector="zero", **SIZES),
    "CausalLM": lambda dtype: CausalLM(11, dtype=dtype, norm_position="pre", positions="rotary", activation="geglu", **(
        SIZES | {"num_heads": 1})),
    "MaskedLM": lambda dtype: MaskedLM(11, dtype=dtype, positions="learned", embedding_norm=True, **SIZES),
    "Classifier": lambda dtype: Classifier(11, 11, dtype=dtype, pooling="first", convolutions=(3,), **SIZES),
}  # fmt: skip
COVERED = {
    *LAYERS, *MODELS, "CrossAttention", "DecoderBlock", "MatrixDecayAdamW", "Objective", "Perplexity", "PaddingMask",
    "RoundingPolicy", "Schedule", "InputEmbedding", "TokenAccuracy", "TokenCrossentropy", "TokenEmbedding",
    "Convolutions", "FactoredAdamW", "Muon", "ScheduleFreeAdamW",
}  # fmt: skip


def compiled(model, kind="cosine"):
    """Compile a model with our loss, metrics, schedule and optimizer."""
    schedule = Schedule(kind, 1e-2, 2, d_model=6, updates=20, final=1e-4)
    metrics = {"metrics": [TokenAccuracy()], "weighted_metrics": [Perplexity()]}
    model.compile(adam(schedule, 1.0, weight_decay=0.01), TokenCrossentropy(0.1), **metrics)
    return model


def again(model, path):
    model.save(path)
    return keras.saving.load_model(path)


def assert_same_training(model, other, inputs, labels, updates=3):
    """Assert that both models have equal variables, now and after more updates with dropout."""
    for count in (0, updates):
        if count:
            for each in (model, other):
                each.fit(inputs, labels, batch_size=len(labels), epochs=count, verbose=0, shuffle=False)
        for one, two in (
            (model.variables, other.variables), (model.optimizer.variables, other.optimizer.variables),
        ):  # fmt: skip
            assert len(one) == len(two)
            for ours, theirs in zip(one, two, strict=True):
                np.testing.assert_array_equal(
                    keras.ops.convert_to_numpy(ours.value), keras.ops.convert_to_numpy(theirs.value), ours.path
                )


@pytest.fixture
def ids(rng):
    ids = rng.integers(3, 11, (4, 7))
    ids[0, 5:] = 0
    return ids


def inputs_of(model, ids):
    if isinstance(model, Transformer):
        return {"source": ids, "target": np.roll(ids, 1, axis=0)}
    return {"ids": ids}


def labels_of(model, ids):
    return ids[:, :1] * 0 + 5 if isinstance(model, Classifier) else ids


class OneClass(keras.layers.Layer):
    """Adds an axis of one token to logits (B, C), as our loss expects."""

    def call(self, logits):
        return logits[:, None]


@SLOW_ON_TENSORFLOW
@pytest.mark.parametrize("dtype", ["float32", pytest.param("mixed_bfloat16", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", fast(MODELS, 1))
def test_a_compiled_model_continues_where_it_was_saved(name, dtype, ids, tmp_path):
    """Guards `Schedule.from_config`, which took two arguments in heedful 0.1.0: `load_model` raised TypeError."""
    model = MODELS[name](dtype)
    inputs, labels = inputs_of(model, ids), labels_of(model, ids)
    if name == "Classifier":
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(adam(Schedule("paper", 1.0, 2, 6)), loss, metrics=["accuracy"])
        labels = labels[:, 0]
    else:
        compiled(model)
    model.fit(inputs, labels, batch_size=4, epochs=2, verbose=0)
    loaded = again(model, tmp_path / "model.keras")
    assert_same_training(model, loaded, inputs, labels)
    one, two = (each.evaluate(inputs, labels, verbose=0, return_dict=True) for each in (model, loaded))
    assert one == two


@pytest.mark.slow
def test_layers_in_a_sequential_model_continue_where_they_were_saved(ids, tmp_path):
    layers = [make() for make in LAYERS.values()]
    model = keras.Sequential([TokenEmbedding(11, 6), *layers, keras.layers.Dense(11)])
    compiled(model).fit(ids, ids, batch_size=4, epochs=2, verbose=0)
    assert_same_training(model, again(model, tmp_path / "model.keras"), ids, ids)


@pytest.mark.slow
def test_layers_of_several_inputs_continue_where_they_were_saved(ids, tmp_path):
    """`InputEmbedding` and `PaddingMask` were not registered in heedful 0.1.0: a model with one could not be loaded."""
    read, written = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    memory = InputEmbedding(TokenEmbedding(11, 6), "learned", 13, dropout=0.2, new_norm=Norm("rms"))(read)
    x = InputEmbedding(TokenEmbedding(11, 6, scale=False), "sinusoidal")(written)
    x = DecoderBlock(6, 2, 10)(x, memory=memory)
    x = CrossAttention(6, 2, attention={"head_dim": 5})(x, memory)
    x = Residual(MultiHeadAttention(6, 2, cross=True))([x, memory])
    logits = PaddingMask()([keras.layers.Dense(11)(x), written])
    model = compiled(keras.Model([read, written], logits))
    model.fit([ids, ids], ids, batch_size=4, epochs=2, verbose=0)
    loaded = again(model, tmp_path / "model.keras")
    assert_same_training(model, loaded, [ids, ids], ids)


@pytest.mark.any_backend
def test_an_objective_continues_where_it_was_saved(ids, tmp_path):
    objective = Objective(MODELS["MaskedLM"]("float32"), 0.1)
    objective.compile(adam(Schedule("paper", 1.0, 2, 6)))
    weights = (ids > 0).astype("float32")
    batch = {"ids": ids, "labels": ids, "weights": weights, "update_tokens": np.full(4, weights.sum(), "float32")}
    objective.fit(batch, batch_size=4, epochs=2, verbose=0, shuffle=False)
    loaded = again(objective, tmp_path / "model.keras")
    assert isinstance(loaded, Objective)
    for _ in range(2):
        for one, two in zip(objective.variables, loaded.variables, strict=True):
            np.testing.assert_array_equal(
                keras.ops.convert_to_numpy(one.value), keras.ops.convert_to_numpy(two.value), one.path
            )
        for each in (objective, loaded):
            each.fit(batch, batch_size=4, epochs=2, verbose=0, shuffle=False)


@pytest.mark.any_backend
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_a_rounded_model_is_saved_and_loaded(precision, ids, tmp_path, numpy):
    model = MODELS["MaskedLM"](RoundingPolicy(precision))
    loaded = again(model, tmp_path / "model.keras")
    assert loaded.dtype_policy.precision == precision
    np.testing.assert_array_equal(numpy(model({"ids": ids})), numpy(loaded({"ids": ids})))


@pytest.mark.any_backend
@pytest.mark.parametrize("kind", SCHEDULES)
def test_every_schedule_is_restored_from_its_config(kind):
    schedule = Schedule(kind, 0.7, 3, d_model=6, updates=20, final=0.1, micro_batches=2)
    other = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    assert [float(other(step)) for step in range(50)] == [float(schedule(step)) for step in range(50)]


@pytest.mark.any_backend
def test_losses_metrics_and_residuals_are_restored_from_their_configs():
    for thing in (
        TokenCrossentropy(0.3),
        TokenAccuracy("right"),
        Perplexity(),
        Residual(None, "pre", 0.2, "rms", bias=False),
    ):
        other = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(thing))
        assert type(other) is type(thing)
        assert other.get_config() == thing.get_config()


@pytest.mark.any_backend
def test_every_class_that_keras_may_save_is_registered_and_tested_here():
    """Guards the lists above: a new class without registration or without a test fails."""
    modules = [
        importlib.import_module(module.name)
        for package in ("layers", "models", "training")
        for module in pkgutil.walk_packages(
            importlib.import_module(f"heedful.{package}").__path__, f"heedful.{package}."
        )
    ]
    found = {
        name: thing
        for module in modules
        for name, thing in vars(module).items()
        if isinstance(thing, type) and issubclass(thing, KERAS) and thing.__module__.startswith("heedful")
    }
    found = {name: thing for name, thing in found.items() if name not in ABSTRACT}
    for name, thing in found.items():
        assert keras.saving.get_registered_name(thing) == f"heedful>{name}"
    assert found.keys() == COVERED
    assert heedful.__version__


@pytest.mark.any_backend
def test_an_optimizer_with_rate_factors_is_restored():
    factors = {"kernel": 0.5, "bias": 0.0}
    before = adam(1e-2, weight_decay=0.1, rate_factors=factors)
    after = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(before))
    assert (after.rate_factors, after.decay, after.weight_decay) == (factors, 0.1, 0.0)
    assert after.beta_2 == before.beta_2


def test_muon_is_restored_with_its_fused_matrices():
    before = Muon(1e-2, fused_widths={"block/key_value/kernel": (8, 8)})
    after = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(before))
    assert (after.fused_widths, after.momentum) == (before.fused_widths, before.momentum)
    scale, kernel = (
        keras.Variable(np.ones(shape, "float32"), name=name) for name, shape in (("scale", 2), ("kernel", (2, 2)))
    )
    assert (after._use_weight_decay(scale), after._use_weight_decay(kernel)) == (False, True)


def test_only_matrices_decay():
    """Guards a new norm: what did not decay was a list of names, and a vector of another name decayed unseen."""
    for optimizer in (adam(0.1, weight_decay=0.1), adam(0.1, weight_decay=0.1, rate_factors={"other": 2.0})):
        values = []
        for shape in ((3,), (3, 2)):
            weight = keras.Variable(np.ones(shape, "float32"), name="steepness")
            copy = type(optimizer).from_config(optimizer.get_config())
            copy.apply([keras.ops.zeros(shape)], [weight])
            values.append(float(backend.to_numpy(weight).mean()))
        np.testing.assert_allclose(values, [1.0, 0.99], rtol=1e-6)
