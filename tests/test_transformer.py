"""The whole model: masks, cached decoding, every option, and Keras' own methods."""

import keras
import numpy as np
import pytest
from keras import ops

import heedful
from heedful.layers import EncoderBlock, TokenEmbedding, Trace, masks
from tests.conftest import fast

SIZES = {"num_layers": 2, "d_model": 24, "num_heads": 6, "d_ff": 20, "max_length": 29}
OPTIONS = [
    {},
    {"norm_position": "pre", "activation": "geglu", "embedding_norm": True},
    {"positions": "sinusoidal_concatenated", "tie": "none", "activation": "gelu"},
    {"positions": "learned", "num_kv_heads": 2},
    {"positions": "rotary", "num_kv_heads": 3, "norm_position": "pre", "attention_dropout": 0.1},
    {"positions": "none", "head_dim": 7, "num_kv_heads": 3, "tie": "none", "feed_forward_dropout": 0.2},
    {"attention_projections": "output", "positions": "rotary"},
    {"attention_projections": "input"},
]


def make(source_vocab_size=31, target_vocab_size=37, **options):
    return heedful.Transformer(source_vocab_size, target_vocab_size, **(SIZES | options))


@pytest.fixture
def batch(rng):
    source, target = rng.integers(4, 31, (5, 7)), rng.integers(4, 37, (5, 11))
    source[1, 4:] = 0
    target[2, 6:] = 0
    return {"source": source, "target": target}


@pytest.mark.parametrize("options", fast(OPTIONS, 2))
def test_logits_are_causal_and_cached_decoding_equals_one_pass(options, batch, numpy):
    """Also checks shapes, and that dropout is off in inference."""
    model = make(**options)
    logits = numpy(model(batch))
    assert logits.shape == (5, 11, 37)
    np.testing.assert_array_equal(logits, numpy(model((batch["source"], batch["target"]))))

    changed = batch["target"].copy()
    changed[:, 5:] = np.where(changed[:, 5:] == 4, 5, 4)
    np.testing.assert_allclose(numpy(model((batch["source"], changed)))[:, :5], logits[:, :5], atol=1e-5)
    assert np.abs(numpy(model((batch["source"], changed)))[:, 5:] - logits[:, 5:]).max() > 1e-3

    memory, past, steps = model.prefill(batch["source"]), model.empty_cache(5, 13), []
    for t in range(11):
        visible = masks.causal(ops.arange(t, t + 1), ops.arange(13))
        ids = ops.convert_to_tensor(batch["target"][:, t : t + 1])
        step = model.decode_step(ids, memory, past, place=t, positions=ops.arange(t, t + 1), visible=visible)
        past = step.past
        steps.append(numpy(step.logits))
    real = batch["target"] != 0
    np.testing.assert_allclose(np.concatenate(steps, 1)[real], logits[real], atol=1e-4)


def test_source_padding_does_not_change_the_logits(batch, numpy):
    """Checks bitwise at the same shape, and up to rounding with more padding."""
    model = make()
    table = model.source_embedding.embeddings
    before = numpy(model(batch))
    changed = numpy(table).copy()
    changed[0] += 100
    table.assign(changed)
    np.testing.assert_array_equal(numpy(model(batch)), before)
    padded = np.pad(batch["source"], ((0, 0), (0, 6)))
    np.testing.assert_allclose(numpy(model((padded, batch["target"]))), before, atol=1e-5)


def test_logits_of_a_sentence_do_not_depend_on_the_batch(batch, numpy):
    model = make()
    together = numpy(model(batch))
    for row in range(5):
        length = (batch["source"][row] != 0).sum()
        alone = numpy(model((batch["source"][row : row + 1, :length], batch["target"][row : row + 1])))
        np.testing.assert_allclose(alone[0], together[row], atol=1e-5)


def test_tied_weights_are_shared(batch):
    counts = {tie: make(37, 37, tie=tie).count_params() for tie in ("none", "target", "all")}
    assert counts["none"] - counts["target"] == counts["target"] - counts["all"] == 37 * 24
    with pytest.raises(ValueError, match="the vocabularies have 31 and 37"):
        make(tie="all")


def test_trace_names_every_attention(batch):
    trace = Trace()
    make()(batch, trace=trace)
    assert sorted(trace) == sorted(
        [f"encoder/block_{i}/self_attention" for i in (0, 1)]
        + [f"decoder/block_{i}/{kind}_attention" for i in (0, 1) for kind in ("self", "cross")]
    )
    assert trace["decoder/block_1/cross_attention"].shape == (5, 6, 11, 7)


def test_losses_and_metrics_of_keras_ignore_padding(batch, numpy):
    """Guards the mask that the logits carry; compares with means over real tokens, computed by hand."""
    model = make()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, weighted_metrics=["accuracy"])
    labels = np.roll(batch["target"], -1, axis=1)
    logits = numpy(model(batch)).astype("float64")
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    real = batch["target"] != 0
    want = -np.take_along_axis(log_probs, labels[..., None], -1)[..., 0][real].mean()
    right = (logits.argmax(-1) == labels)[real].mean()
    scores = model.evaluate(batch, labels, batch_size=5, verbose=0, return_dict=True)
    assert scores["loss"] == pytest.approx(want, abs=1e-4)
    assert scores["accuracy"] == pytest.approx(right, abs=1e-6)


@pytest.mark.slow
def test_a_fitted_model_predicts_the_same_after_loading(batch, tmp_path, numpy, capsys):
    model = make()
    model.compile(keras.optimizers.Adam(1e-2), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    labels = np.roll(batch["target"], -1, axis=1)
    history = model.fit(batch, labels, epochs=30, batch_size=5, verbose=0).history["loss"]
    assert history[-1] < history[0] / 2
    before = model.predict(batch, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(batch, verbose=0), before)
    model.summary()
    assert "Total params" in capsys.readouterr().out


def test_plot_model_draws_the_model(tmp_path):
    pytest.importorskip("pydot")
    try:
        keras.utils.plot_model(make(), tmp_path / "model.png", show_shapes=True)
    except ImportError as error:
        pytest.skip(str(error))  # pydot is installed, graphviz is not
    assert (tmp_path / "model.png").stat().st_size > 1000


@pytest.mark.slow
def test_mixed_bfloat16_is_close_and_learns(batch, numpy):
    full, mixed = make(), make(dtype="mixed_bfloat16")
    mixed.set_weights(full.get_weights())
    logits = numpy(ops.cast(mixed(batch), "float32"))
    assert "bfloat16" in str(mixed(batch).dtype)
    assert np.abs(logits - numpy(full(batch))).max() < 0.1
    assert all("float32" in str(weight.dtype) for weight in mixed.weights)
    mixed.compile("adam", heedful.TokenCrossentropy(0.1), weighted_metrics=[heedful.TokenAccuracy()])
    history = mixed.fit(batch, np.roll(batch["target"], -1, axis=1), epochs=25, batch_size=5, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]


def test_both_inputs_may_share_a_table_that_the_output_does_not_use(batch, numpy):
    model = make(37, tie="inputs", output_bias=True)
    assert model.source_embedding is model.target_embedding is not model.output_projection
    assert model.count_params() == make(37, tie="all").count_params() + 37 * 24 + 37
    with pytest.raises(ValueError, match=r"tie='inputs' shares one table, but the vocabularies have 31 and 37"):
        make(tie="inputs")


@pytest.mark.any_backend
def test_without_positions_an_encoder_is_a_bag_of_words(batch, numpy):
    model = make(positions="none")
    source = np.array([[5, 9, 7, 8]])
    logits = numpy(model((source, batch["target"][:1])))
    np.testing.assert_allclose(numpy(model((source[:, ::-1].copy(), batch["target"][:1]))), logits, atol=1e-5)
    ordered = make()
    one, other = (numpy(ordered((ids, batch["target"][:1]))) for ids in (source, source[:, ::-1].copy()))
    assert np.abs(one - other).max() > 1e-3


@pytest.mark.any_backend
def test_without_a_causal_mask_positions_read_later_tokens(batch, numpy):
    model, changed = make(causal_mask=False), batch["target"].copy()
    changed[:, 5:] = np.where(changed[:, 5:] == 4, 5, 4)
    logits = numpy(model(batch))
    assert (np.abs(numpy(model((batch["source"], changed))) - logits)[:, :5].max(axis=(1, 2)) > 1e-4).all()


def test_unknown_options_are_named():
    with pytest.raises(ValueError, match="Unknown positions 'sinus'"):
        make(positions="sinus")
    with pytest.raises(ValueError, match="Unknown norm_position 'middle'"):
        make(norm_position="middle")


def test_dropout_is_on_in_fit_and_off_elsewhere(batch, numpy):
    """Guards passing `training` to the layers: where it is lost, Keras silently leaves dropout off in `fit`."""
    model = make(dropout=0.5)
    labels = np.roll(batch["target"], -1, axis=1)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.0), loss)
    fitted = [model.fit(batch, labels, batch_size=5, verbose=0).history["loss"][0] for _ in range(2)]
    evaluated = [model.evaluate(batch, labels, batch_size=5, verbose=0) for _ in range(2)]
    assert evaluated[0] == evaluated[1]
    assert fitted[0] != fitted[1] != evaluated[0]


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "build",
    [
        lambda sizes: heedful.Transformer(31, 37, **sizes),
        lambda sizes: heedful.CausalLM(37, **sizes, tie="none"),
        lambda sizes: heedful.MaskedLM(37, **sizes),
        lambda sizes: heedful.Classifier(37, 3, pooling="first", **sizes),
    ],
)
def test_the_summary_has_the_shape_of_every_layer(build):
    lines: list[str] = []
    build(SIZES).summary(print_fn=lines.append, line_length=120)
    table = "\n".join(lines)
    assert "?" not in table
    assert "(None, None, 24, 24)" not in table  # of an embedding whose ids seemed to be vectors, in heedful 0.1.0
    assert "(None, None, 24)" in table


@pytest.mark.any_backend
def test_a_plot_has_the_shapes_of_the_layers():
    pytest.importorskip("pydot")
    ids = keras.Input((7,), dtype="int32")
    x = EncoderBlock(24, 6, 20)(TokenEmbedding(37, 24, mask_zero=True)(ids))
    model = keras.Model(ids, keras.layers.Dense(5)(x))
    labels = keras.utils.model_to_dot(model, show_shapes=True).to_string()
    for shape in ("(None, 7)", "(None, 7, 24)", "(None, 7, 5)"):
        assert shape in labels


@pytest.mark.any_backend
def test_residual_init_scales_only_what_sublayers_write(numpy):
    """The same draws, times the factor; all other weights are equal."""
    sizes = {"num_layers": 1, "d_model": 12, "num_heads": 2, "d_ff": 8}
    models = []
    for factor in (1.0, 0.25):
        keras.utils.set_random_seed(3)
        models.append(heedful.Transformer(11, 13, residual_init=factor, **sizes))
    scaled = 0
    for one, other in zip(models[0].weights, models[1].weights, strict=True):
        writes = one.path.endswith(("_attention/output/kernel", "feed_forward/outer/kernel"))
        scaled += writes
        np.testing.assert_allclose(numpy(other), (0.25 if writes else 1.0) * numpy(one), rtol=1e-6, err_msg=one.path)
    assert scaled == 5
