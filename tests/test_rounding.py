"""Products with rounded weights: near what float32 gives, the same in any batch, refused where they make no sense."""

import keras
import numpy as np
import pytest

import heedful
from heedful import backend
from heedful.config import DecodeConfig
from heedful.generation.translator import Translator
from heedful.layers.rounding import PRECISIONS, RoundingPolicy, rounded_values
from heedful.models.ensemble import Ensemble
from heedful.models.rounded import rounded

KINDS = [
    {"tie": "all"},
    {
        "tie": "none",
        "num_kv_heads": 2,
        "activation": "swiglu",
        "positions": "rotary",
        "output_bias": True,
        "bias": False,
    },
]
# Of the largest logit: eight bits of a mantissa, and seven bits of a row's largest number.
ERROR = {"bfloat16": 0.02, "int8": 0.05}


@pytest.fixture
def batch(rng):
    source, target = rng.integers(4, 71, (5, 7)), rng.integers(4, 71, (5, 11))
    source[0, 4:] = target[1, 6:] = 0
    return {"source": source, "target": target}


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("options", KINDS, ids=["paper", "modern"])
def test_a_rounded_model_is_near_its_original(options, precision, batch, numpy):
    model = heedful.Transformer(71, 71, num_layers=2, d_model=32, num_heads=4, d_ff=48, **options)
    for weight in model.weights:  # zeros would hide what is left out
        weight.assign(numpy(weight) + np.random.default_rng(1).normal(0, 0.05, weight.shape))
    copy = rounded(model, precision)
    assert not copy.trainable_weights
    wanted, found = numpy(model(batch)), numpy(copy(batch))
    real = batch["target"] != 0
    error = np.abs(found - wanted)[real].max() / np.abs(wanted[real]).max()
    assert 1e-5 < error < ERROR[precision]  # above: it really was rounded
    kernels = [weight for weight in copy.weights if weight.path.endswith("_rounded")]
    assert len(kernels) == sum(weight.path.endswith("kernel") for weight in model.weights) + (
        len({id(table) for table in (model.source_embedding, model.target_embedding, model.output_projection)})
    )
    assert {keras.backend.standardize_dtype(weight.dtype) for weight in kernels} == {precision}


@pytest.mark.any_backend
def test_int8_is_the_nearest_of_255_values(normal):
    kernel = normal(13, 7)
    values = rounded_values(kernel, "int8")
    assert values["rounded"].dtype == np.int8
    np.testing.assert_array_equal(np.abs(values["rounded"]).max(axis=0), 127)
    error = np.abs(values["rounded"] * values["scales"] - kernel)
    assert (error <= values["scales"] / 2 + 1e-7).all()
    assert not rounded_values(np.zeros((3, 2), np.float32), "int8")["rounded"].any()


@pytest.mark.parametrize("rows", [1, 5])  # a single one is multiplied with others beside it
def test_a_product_of_int8_is_exact(rows, numpy):
    random = np.random.default_rng(2)
    x, kernel = (random.integers(-127, 128, shape).astype(np.int8) for shape in ((rows, 301), (301, 3)))
    found = numpy(backend.product(keras.ops.convert_to_tensor(x), keras.ops.convert_to_tensor(kernel)))
    np.testing.assert_array_equal(found, x.astype(np.int64) @ kernel.astype(np.int64))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.any_backend
def test_translations_do_not_hang_on_their_neighbours(precision, corpus):
    tokenizer = heedful.data.tokenizer.Tokenizer.train((text for pair in corpus for text in pair), "word", 60)
    size = len(tokenizer)
    model = heedful.Transformer(size, size, num_layers=1, d_model=32, num_heads=2, d_ff=48, tie="all")
    translator = Translator(Ensemble([model]), tokenizer, tokenizer, DecodeConfig(max_length=9, precision=precision))
    lines = [source for source, _ in corpus]
    together = translator.translate(lines)
    assert together == [translator.translate(line) for line in lines]
    assert translator.translate(lines[::-1], batch_size=3) == together[::-1]


@pytest.mark.any_backend
def test_the_command_line_rounds(cli, recipe):
    assert cli("train", recipe, "--run", "run", "--decode.precision", "int8").returncode == 0  # validates as trained
    for precision in ("as_trained", *PRECISIONS):
        made = cli("translate", "run", "--precision", precision, stdin="o gato bebe\n\na vaca come\n")
        assert made.returncode == 0, made.stderr
        assert len(made.stdout.splitlines()) == 3
    refused = cli("translate", "run", "--precision", "int4", stdin="o gato\n")
    assert refused.returncode == 2
    assert b"'as_trained', 'bfloat16', 'int8'" in refused.stderr


@pytest.mark.any_backend
def test_what_cannot_be_rounded_to():
    with pytest.raises(ValueError, match="bfloat16 or int8"):
        RoundingPolicy("float16")
    with pytest.raises(ValueError, match="not to 'int4'"):
        rounded(heedful.Transformer(7, 7, num_layers=1, d_model=8, num_heads=2, d_ff=8), "int4")
