"""What users of Keras expect of layers and models: masks, shapes, saving, exports, clear errors."""

import subprocess
import sys

import keras
import numpy as np
import pytest

from heedful import Generator, MaskFiller, TextClassifier, Tokenizer, Translator, backend
from heedful.layers import (
    CausalSelfAttention,
    EncoderBlock,
    FeedForward,
    MultiHeadAttention,
    SelfAttention,
    TokenEmbedding,
)
from heedful.layers.attention import attention_weights
from heedful.models import CausalLM, Classifier, MaskedLM, Transformer
from heedful.training.loss import TokenCrossentropy
from heedful.training.metrics import Perplexity

SIZES = {"num_layers": 1, "d_model": 6, "num_heads": 2, "d_ff": 10, "max_length": 13}
IDS = np.array([[3, 4, 5, 6, 7, 0, 0], [8, 9, 4, 0, 0, 0, 0], [5, 4, 3, 2, 3, 4, 9]], "int32")
VALID = IDS != 0
HIDDEN = ~VALID[:, None, None, :]
# The tutorials' masks (1 = hidden), masks that are added to the scores, and 0/1 masks of other types.
NOT_BOOLEAN = {
    "tutorial": HIDDEN.astype("float32"), "integers": HIDDEN.astype("int32"), "visible": 1 - HIDDEN.astype("int32"),
    "added -1e9": HIDDEN * np.float32(-1e9), "added -inf": np.where(HIDDEN, -np.inf, 0).astype("float32"),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_BOOLEAN)
def test_masks_that_are_not_boolean_are_refused(normal, name):
    """Guards against attention to the padding alone: the tutorials' masks mean the opposite."""
    x, mask = normal(3, 7, 12), NOT_BOOLEAN[name]
    with pytest.raises(ValueError, match=r"must be boolean, True where a query may attend.*Pass `mask == 0`"):
        MultiHeadAttention(12, 4)(x, visible=mask)
    with pytest.raises(ValueError, match="must be boolean"):
        EncoderBlock(12, 4, 10)(x, visible=mask)
    with pytest.raises(ValueError, match="must be boolean"):
        attention_weights(normal(3, 7, 4, 3), normal(3, 7, 4, 3), mask)


def test_a_mask_of_keras_means_the_same(normal, numpy):
    """(B, T, S) is read as Keras reads it, even where B is the number of heads; (B, S) is refused where B is T."""
    x = normal(4, 7, 12)
    visible = np.tril(np.ones((7, 7), bool))[None] & (np.arange(7) < np.array([3, 5, 7, 6])[:, None])[:, None]
    layer, theirs = MultiHeadAttention(12, 4), keras.layers.MultiHeadAttention(4, 3)
    theirs(x, x, attention_mask=visible)
    layer(x)
    kernel = np.concatenate([numpy(dense.kernel).reshape(12, 12) for dense in
                             (theirs.query_dense, theirs.key_dense, theirs.value_dense)], axis=1)  # fmt: skip
    layer.set_weights([kernel, np.zeros(36), numpy(theirs.output_dense.kernel).reshape(12, 12), np.zeros(12)])
    want = numpy(theirs(x, x, attention_mask=visible))
    np.testing.assert_allclose(numpy(layer(x, visible=visible)), want, atol=1e-6)
    np.testing.assert_array_equal(numpy(layer(x, visible=visible)), numpy(layer(x, visible=visible[:, None])))
    with pytest.raises(ValueError, match=r"shape \(7, 7\) does not fit.*pass `mask\[:, None, None, :\]`"):
        layer(normal(7, 7, 12), visible=np.ones((7, 7), bool))


def test_keys_and_values_may_differ(normal, numpy):
    query, key, value = normal(2, 5, 12), normal(2, 7, 12), normal(2, 7, 12)
    layer, theirs = MultiHeadAttention(12, 4, cross=True), keras.layers.MultiHeadAttention(4, 3)
    theirs(query, value, key)
    layer(query, key, values=value)
    parts = {name: numpy(getattr(theirs, f"{name}_dense").kernel).reshape(12, 12) for name in ("query", "key", "value")}
    output = numpy(theirs.output_dense.kernel).reshape(12, 12)
    pair = np.concatenate([parts["key"], parts["value"]], axis=1)
    layer.set_weights([parts["query"], np.zeros(12), pair, np.zeros(24), output, np.zeros(12)])
    np.testing.assert_allclose(numpy(layer(query, key, values=value)), numpy(theirs(query, value, key)), atol=1e-6)
    for call in (lambda: MultiHeadAttention(12, 4)(query, key), lambda: layer(query)):
        with pytest.raises(ValueError, match=r"[Cc]ross"):
            call()


def models():
    return {
        "causal": (CausalLM(11, **SIZES), IDS, (3, 7, 11)),
        "masked": (MaskedLM(11, **SIZES), IDS, (3, 7, 11)),
        "classifier": (Classifier(11, 4, **SIZES), IDS, (3, 4)),
        "transformer": (Transformer(11, 9, **SIZES), {"source": IDS, "target": np.minimum(IDS, 8)}, (3, 7, 9)),
    }


def test_shapes_are_known_before_a_call():
    for layer in (MultiHeadAttention(6, 2), EncoderBlock(6, 2, 10), FeedForward(6, 10), SelfAttention(6, 2)):
        assert layer.compute_output_shape((3, 7, 6)) == (3, 7, 6)
        again = keras.layers.TimeDistributed(type(layer).from_config(layer.get_config()))
        assert again(keras.Input((4, 7, 6))).shape == (None, 4, 7, 6)
    stack = keras.Sequential([TokenEmbedding(11, 6), EncoderBlock(6, 2, 10), keras.layers.Dense(5)])
    assert tuple(stack.compute_output_shape((3, 7))) == (3, 7, 5)
    for model, inputs, shape in models().values():
        given = {name: array.shape for name, array in inputs.items()} if isinstance(inputs, dict) else inputs.shape
        assert tuple(model.compute_output_shape(given)) == shape


@pytest.mark.slow
def test_features_of_symbolic_inputs_are_those_of_arrays(numpy):
    for name, (model, inputs, _) in models().items():
        symbolic = (
            {side: keras.Input((None,), dtype="int32", name=side) for side in inputs}
            if isinstance(inputs, dict) else keras.Input((None,), dtype="int32")
        )  # fmt: skip
        functional = keras.Model(symbolic, model.features(symbolic))
        np.testing.assert_allclose(numpy(functional(inputs)), numpy(model.features(inputs)), atol=1e-6, err_msg=name)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The `native_serialization` parameter is deprecated:DeprecationWarning")
@pytest.mark.skipif(backend.NAME == "torch", reason="Keras itself exports no SavedModel from torch")
def test_a_fitted_model_is_exported_as_a_saved_model(tmp_path, numpy):
    tensorflow = pytest.importorskip("tensorflow")
    for name, (model, inputs, _) in models().items():
        if name == "classifier":
            continue
        model.compile("sgd", TokenCrossentropy())
        model.fit(inputs, inputs["target"] if isinstance(inputs, dict) else inputs, verbose=0)
        model.export(str(tmp_path / name), verbose=False)
        loaded = tensorflow.saved_model.load(str(tmp_path / name))
        np.testing.assert_allclose(loaded.serve(inputs).numpy(), numpy(model(inputs)), atol=5e-6, err_msg=name)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch's exporter
@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.skipif(backend.NAME != "torch", reason="Keras exports to ONNX through torch")
def test_a_fitted_model_is_exported_to_onnx(tmp_path, numpy, norm):
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    model = CausalLM(31, num_layers=2, d_model=16, num_heads=2, d_ff=32, max_length=16, norm=norm, positions="rotary")
    ids = np.array([[5, 6, 7, 8, 9], [9, 8, 7, 0, 0]], np.int32)
    model.compile("sgd", TokenCrossentropy())
    model.fit(ids, ids, verbose=0)
    model.export(str(tmp_path / "model.onnx"), format="onnx", verbose=False)
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    for inputs in (ids, ids[:1, :3]):
        [logits] = session.run(None, {session.get_inputs()[0].name: inputs})
        np.testing.assert_allclose(logits, numpy(model(inputs)), atol=5e-6)


def test_an_embedding_keeps_its_options(tmp_path, numpy):
    """Guards against a saved model whose loss changes, since the regulariser is gone."""
    layer = TokenEmbedding(
        11, 6, bias=True, embeddings_regularizer=keras.regularizers.L2(0.3), embeddings_initializer="ones",
        embeddings_constraint=keras.constraints.MaxNorm(2.0),
    )  # fmt: skip
    again = TokenEmbedding.from_config(layer.get_config())
    assert again.embeddings_regularizer.l2 == pytest.approx(0.3)
    assert again.embeddings_constraint.max_value == 2.0
    assert TokenEmbedding.from_config(TokenEmbedding(11, 6, lora_rank=2).get_config()).lora_rank == 2
    again.build()
    assert numpy(again._embeddings).tolist() == np.ones((11, 6)).tolist()
    model = keras.Sequential([TokenEmbedding(11, 6, embeddings_regularizer="l2"), keras.layers.Dense(11)])
    model.compile("sgd", TokenCrossentropy())
    model.fit(IDS, IDS, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.evaluate(IDS, IDS, verbose=0) == pytest.approx(model.evaluate(IDS, IDS, verbose=0))


def test_an_embedding_with_lora_is_saved_and_trained_further(tmp_path, numpy):
    model = keras.Sequential([TokenEmbedding(11, 6), keras.layers.Dense(11)])
    model(IDS)
    model.layers[0].enable_lora(2)
    model.compile("sgd", TokenCrossentropy())
    model.fit(IDS, IDS, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(numpy(loaded(IDS)), numpy(model(IDS)))
    table = numpy(loaded.layers[0]._embeddings)
    loaded.fit(IDS, IDS, verbose=0)
    np.testing.assert_array_equal(numpy(loaded.layers[0]._embeddings), table)


def test_the_loss_of_weighted_tokens_is_their_mean(numpy):
    """(B, T) weights, on TensorFlow too; and class weights, which Keras would apply to whole texts, are refused."""
    model = CausalLM(11, **SIZES)
    model.compile("sgd", TokenCrossentropy(), weighted_metrics=[])
    half = np.array([[1.0] * 7, [0.0] * 7, [0.0] * 7], "float32")
    weighted = model.evaluate(IDS, IDS, sample_weight=half, verbose=0)
    assert weighted == pytest.approx(model.evaluate(IDS[:1], IDS[:1], verbose=0), rel=1e-5)
    with pytest.raises(ValueError, match="class_weight"):
        model.fit(IDS, IDS, class_weight={0: 9.0}, verbose=0)
    classifier = Classifier(11, 4, **SIZES)
    classifier.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    classifier.fit(IDS, np.array([0, 1, 3]), class_weight={0: 9.0, 1: 1.0, 3: 1.0}, verbose=0)


def test_ids_that_a_model_cannot_read_are_refused():
    """Guards against NaN on JAX without a word, and against padding in front, which a decoder would attend to."""
    model = CausalLM(11, **SIZES)
    model.compile("sgd", TokenCrossentropy())
    for call in (model, model.predict, lambda ids: model.fit(ids, IDS, verbose=0)):
        with pytest.raises(ValueError, match="the id 13, but the vocabulary has 11 entries, 0 to 10"):
            call(np.where(IDS == 9, 13, IDS))
        with pytest.raises(ValueError, match="begins with padding"):
            call(IDS[:, ::-1])


def test_labels_that_are_not_in_the_vocabulary_are_refused():
    model = CausalLM(11, **SIZES)
    model.compile("sgd", TokenCrossentropy())
    for call in (model.fit, model.evaluate):
        with pytest.raises(ValueError, match="The labels contain 13, but the vocabulary has 11 entries, 0 to 10"):
            call(IDS, np.where(IDS == 9, 13, IDS), verbose=0)
        with pytest.raises(ValueError, match="The labels contain -1"):
            call(IDS, np.where(IDS == 9, -1, IDS), verbose=0)
    model.evaluate(IDS, np.where(IDS == 9, -1, IDS), sample_weight=1.0 * (IDS != 9), verbose=0)  # they may not count


@pytest.mark.parametrize("ignored", [-100, 99])
def test_an_ignored_label_may_be_no_word(normal, numpy, ignored):
    """Guards against NaN on JAX and an error on TensorFlow: -100 is usual in PyTorch."""
    logits, labels = normal(3, 7, 11), np.where(IDS == 0, ignored, IDS)
    for kind in (TokenCrossentropy, Perplexity):
        got, expected = (kind(ignored_label=label)(y, logits) for label, y in ((ignored, labels), (0, IDS)))
        np.testing.assert_allclose(numpy(got), numpy(expected), rtol=1e-6)
    np.testing.assert_allclose(
        numpy(TokenCrossentropy()(IDS[..., None], logits)), numpy(TokenCrossentropy()(IDS, logits)), rtol=1e-6
    )
    model = CausalLM(11, **SIZES)
    model.compile("sgd", TokenCrossentropy(ignored_label=ignored))
    assert np.isfinite(model.fit(IDS, labels, verbose=0).history["loss"]).all()


def test_positions_count_without_segments(numpy):
    model = Transformer(11, 11, **SIZES)
    source, target = IDS[2:, :5], IDS[2:, 2:]
    plain = {"source": source, "target": target}
    spread = plain | {"source_positions": np.array([[0, 2, 4, 6, 8]]), "target_positions": np.array([[5, 6, 7, 8, 9]])}
    segments = {f"{side}_segments": np.ones((1, 5), "int32") for side in ("source", "target")}
    assert np.abs(numpy(model(spread)) - numpy(model(plain))).max() > 1e-3
    np.testing.assert_allclose(numpy(model(spread | segments)), numpy(model(spread)), atol=1e-5)
    np.testing.assert_allclose(numpy(model(plain | segments)), numpy(model(plain)), atol=1e-5)
    with pytest.raises(ValueError, match="need both source_segments and target_segments"):
        model(plain | {"source_segments": segments["source_segments"]})


@pytest.mark.parametrize("shape", [(0, 4), (2, 0)])
def test_there_may_be_no_text_or_no_token(numpy, shape):
    assert numpy(CausalLM(11, **SIZES)(np.zeros(shape, "int32"))).shape == (*shape, 11)


def test_sizes_that_are_not_positive_are_refused():
    for name in ("num_layers", "d_ff", "max_length", "d_model", "num_heads", "num_kv_heads"):
        with pytest.raises(ValueError, match=rf"{name} \(0\) must be at least 1"):
            CausalLM(11, **SIZES | {name: 0})
    with pytest.raises(ValueError, match="must be positive"):
        MultiHeadAttention(12, 4, num_kv_heads=0)


def test_predictors_refuse_models_and_tokenizers_that_do_not_fit():
    tokenizer = Tokenizer.train(["a cat drinks milk"], "char", 30)
    size = len(tokenizer)
    translator, writer = Transformer(size, size, **SIZES), CausalLM(size, **SIZES)
    for predictor, arguments, message in (
        (Generator, (translator, tokenizer), "A Transformer has no vocab_size"),
        (Translator, (writer, tokenizer, tokenizer), "A CausalLM has no source_vocab_size"),
        (Generator, (CausalLM(size - 1, **SIZES), tokenizer), rf"has {size} tokens, but vocab_size of the model"),
        (MaskFiller, (MaskedLM(size, **SIZES), tokenizer), r"no \[MASK\] token"),
        (TextClassifier, (Classifier(size, 3, **SIZES), tokenizer, ["a", "b"], 9), "has 3 classes, but 2 labels"),
    ):
        with pytest.raises(ValueError, match=message):
            predictor(*arguments)


def test_the_embeddings_of_a_translator_have_the_deviation_that_is_asked_for():
    model = Transformer(2000, 2000, embedding_std=0.02, **SIZES)
    assert backend.to_numpy(model.target_embedding.embeddings).std() == pytest.approx(0.02, rel=0.05)


def test_sublayers_take_the_sizes_of_the_tutorials(normal, numpy):
    layer = CausalSelfAttention(12, 2, head_dim=12, norm_epsilon=1e-3)
    again = CausalSelfAttention.from_config(layer.get_config())
    again(normal(2, 5, 12))
    assert again.attention.head_dim == 12
    assert again.residual.norm.epsilon == 1e-3


@pytest.mark.slow
@pytest.mark.any_backend
def test_packages_are_found_after_a_bare_import():
    code = (
        "import sys, heedful\nassert 'keras' not in sys.modules\nassert heedful.layers.TokenEmbedding\n"
        "assert heedful.models.CausalLM and heedful.training\ntry: heedful.nothing\nexcept AttributeError: print('ok')"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "ok\n"
