"""Products with rounded weights: close to float32, independent of the batch, and only in known precisions."""

import keras
import numpy as np
import pytest

import heedful
from heedful import backend
from heedful.config import Config, DecodeConfig
from heedful.config.settings import override
from heedful.data.tokenizer import Tokenizer
from heedful.inference.generator import Generator
from heedful.inference.translator import Translator
from heedful.layers.rounding import PRECISIONS, RoundingPolicy, rounded_values
from heedful.models.ensemble import Ensemble
from heedful.models.precisions import in_precision
from heedful.runs.scores.provenance import read
from heedful.tasks.translate import TranslationValidator
from heedful.workflows import Training
from tests.conftest import fast

KINDS = [
    {"tie": "all"},
    {
        "tie": "none",
        "num_kv_heads": 2,
        "qk_norm": True,
        "activation": "swiglu",
        "positions": "rotary",
        "output_bias": True,
        "bias": False,
    },
]
# RMS error relative to the logits' RMS: bfloat16 has 8 significant bits, int8 has 7 bits of a row's maximum.
ERROR = {"bfloat16": 0.02, "int8": 0.05}


@pytest.fixture
def batch(rng):
    source, target = rng.integers(4, 71, (5, 7)), rng.integers(4, 71, (5, 11))
    source[0, 4:] = target[1, 6:] = 0
    return {"source": source, "target": target}


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("options", fast(KINDS, 1), ids=["paper", "modern"])
def test_a_rounded_model_is_near_its_original(options, precision, batch, numpy):
    model = heedful.Transformer(71, 71, num_layers=2, d_model=32, num_heads=4, d_ff=48, **options)
    for weight in model.weights:  # zeros would hide weights that are left out
        weight.assign(numpy(weight) + np.random.default_rng(1).normal(0, 0.05, weight.shape))
    copy = in_precision(model, precision)
    assert not copy.trainable_weights
    wanted, found = numpy(model(batch)), numpy(copy(batch))
    real = batch["target"] != 0
    error = np.sqrt(np.square(found - wanted)[real].mean() / np.square(wanted[real]).mean())
    assert ERROR[precision] / 20 < error < ERROR[precision]  # it really was rounded
    kernels = [weight for weight in copy.weights if weight.path.endswith("_rounded")]
    assert len(kernels) == sum(weight.path.endswith("kernel") for weight in model.weights) + (
        len({id(table) for table in (model.source_embedding, model.target_embedding, model.output_projection)})
    )
    assert {keras.backend.standardize_dtype(weight.dtype) for weight in kernels} == {precision}


@pytest.mark.any_backend
def test_int8_rounds_to_the_nearest_of_255_values(normal):
    kernel = normal(13, 7)
    values = rounded_values(kernel, "int8")
    assert values["rounded"].dtype == np.int8
    np.testing.assert_array_equal(np.abs(values["rounded"]).max(axis=0), 127)
    error = np.abs(values["rounded"] * values["scales"] - kernel)
    assert (error <= values["scales"] / 2 + 1e-7).all()
    assert not rounded_values(np.zeros((3, 2), np.float32), "int8")["rounded"].any()


@pytest.mark.parametrize("rows", [1, 5])  # JAX on a CPU pads a single row to several
def test_a_product_of_int8_is_exact(rows, numpy):
    random = np.random.default_rng(2)
    x, kernel = (random.integers(-127, 128, shape).astype(np.int8) for shape in ((rows, 301), (301, 3)))
    found = numpy(backend.multiply(keras.ops.convert_to_tensor(x), keras.ops.convert_to_tensor(kernel)))
    np.testing.assert_array_equal(found, x.astype(np.int64) @ kernel.astype(np.int64))


@pytest.mark.parametrize("precision", fast(PRECISIONS[::-1], 1))
@pytest.mark.any_backend
def test_translations_do_not_depend_on_the_batch(precision, corpus):
    tokenizer = Tokenizer.train((text for pair in corpus for text in pair), "word", 60)
    size = len(tokenizer)
    model = heedful.Transformer(size, size, num_layers=1, d_model=32, num_heads=2, d_ff=48, tie="all")
    translator = Translator(Ensemble([model]), tokenizer, tokenizer, DecodeConfig(max_length=9, precision=precision))
    search = translator.search_with()
    assert any(weight.path.endswith("_rounded") for weight in search.model.variables)
    assert translator.search_with(beam_size=2).model is search.model  # one copy for all searches
    assert translator.search_with(precision="as_trained").model is translator.model
    lines = [source for source, _ in corpus]
    together = translator.translate(lines)
    assert together == [translator.translate(line) for line in lines]
    assert translator.translate(lines[::-1], batch_size=3) == together[::-1]


@pytest.mark.parametrize("precision", fast(PRECISIONS, 1))
def test_a_language_model_generates_in_lower_precision(precision, numpy):
    tokenizer = Tokenizer.train(["the cat drinks milk", "the cow eats"], "char", 40)
    model = heedful.CausalLM(len(tokenizer), num_layers=1, d_model=32, num_heads=2, d_ff=48, max_length=20)
    generator = Generator(model, tokenizer, DecodeConfig(precision=precision, max_length=6))
    made = generator.generate(["the c", "the"])
    assert made == [generator.generate(prompt) for prompt in ("the c", "the")]
    ids = np.array([tokenizer.encode("the c")])
    wanted = numpy(in_precision(model, precision)(ids))[0, -1]
    wanted[: tokenizer.end_id] = -np.inf  # never generated
    assert made[0][:6] in {"the c" + tokenizer.decode([int(wanted.argmax())]), "the c"}


@pytest.mark.any_backend
@pytest.mark.slow
@pytest.mark.parametrize("learned_in", ["float32", "bfloat16"])
def test_validation_decodes_with_the_current_weights(learned_in, recipe, tmp_path, numpy, monkeypatch):
    config = override(Config.from_toml(recipe), ["--decode.precision", "int8", "--train.precision", learned_in])
    training = Training.create(config, tmp_path / "run", lambda line: None)
    seen, predictors = [], []
    validate = TranslationValidator.__call__

    def watched(validator):
        result, predictor = validate(validator), validator.predictor
        predictors.append(predictor)
        models = predictor.decoding_model, predictor.model
        copy, learned = (model.encoder.blocks[0].feed_forward.inner for model in models)
        values, scales = numpy(copy.rounded.values), numpy(copy.rounded.scales)
        np.testing.assert_allclose(values * scales, numpy(learned.kernel), atol=scales.max())
        seen.append(values)
        return result

    monkeypatch.setattr(TranslationValidator, "__call__", watched)
    run = training.train()
    assert len(seen) == 2
    assert (seen[0] != seen[1]).any()
    kept_and_loaded = (each.decoding_model.weights for each in (predictors[-1], Translator.from_run(run)))
    for kept, read_again in zip(*kept_and_loaded, strict=True):
        np.testing.assert_array_equal(numpy(kept), numpy(read_again), err_msg=kept.path)
    assert read(run)[-1]["decode"]["precision"] == "int8"


@pytest.mark.any_backend
def test_a_bfloat16_model_decodes_with_only_its_products_in_bfloat16(batch, numpy):
    options = {"num_layers": 1, "d_model": 32, "num_heads": 4, "d_ff": 48}
    model = heedful.Transformer(71, 71, dtype="mixed_bfloat16", **options)
    copies = {precision: in_precision(model, precision) for precision in ("as_trained", "bfloat16", "float32")}
    plain = heedful.Transformer(71, 71, **options)
    for weight, other in zip(plain.weights, model.weights, strict=True):
        weight.assign(numpy(other))
    logits = {precision: numpy(copy(batch)) for precision, copy in copies.items()}
    assert copies["as_trained"].compute_dtype == "float32"
    np.testing.assert_array_equal(logits["as_trained"], logits["bfloat16"])
    np.testing.assert_array_equal(logits["float32"], numpy(plain(batch)))
    assert (logits["float32"] != logits["bfloat16"]).any()
    assert in_precision(plain, "as_trained") is in_precision(plain, "float32") is plain


@pytest.mark.slow
@pytest.mark.any_backend
def test_the_command_line_decodes_in_every_precision(cli, run):
    for precision in ("as_trained", "float32", *PRECISIONS):
        made = cli("translate", run, "--precision", precision, stdin="o gato bebe\n\na vaca come\n")
        assert made.returncode == 0, made.stderr
        assert len(made.stdout.splitlines()) == 3
    refused = cli("translate", run, "--precision", "int4", stdin="o gato\n")
    assert refused.returncode == 2
    assert b"'as_trained', 'float32', 'bfloat16', 'int8'" in refused.stderr


@pytest.mark.any_backend
def test_unknown_precisions_are_refused():
    with pytest.raises(ValueError, match="bfloat16 or int8"):
        RoundingPolicy("float16")
    with pytest.raises(ValueError, match="not to 'int4'"):
        in_precision(heedful.Transformer(7, 7, num_layers=1, d_model=8, num_heads=2, d_ff=8), "int4")
