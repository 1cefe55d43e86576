"""Masks that Keras propagates: models built from the layers read no padding and no later tokens."""

import keras
import numpy as np
import pytest
from keras import ops

from heedful.core.special_tokens import END_ID, START_ID
from heedful.data.phrasebook import phrasebook
from heedful.data.tokenizer import Tokenizer
from heedful.layers import (
    CausalMask,
    CausalSelfAttention,
    CrossAttention,
    DecoderBlock,
    EncoderBlock,
    FeedForward,
    LearnedPositions,
    MultiHeadAttention,
    PaddingMask,
    Residual,
    SelfAttention,
    SinusoidalPositions,
    Stack,
    TokenEmbedding,
    masks,
)
from heedful.models import Transformer
from heedful.training.loss import TokenCrossentropy
from heedful.training.metrics import TokenAccuracy

IDS = np.array([[3, 4, 5, 6, 7, 0, 0], [8, 9, 0, 0, 0, 0, 0]], "int32")
REAL = IDS != 0


def encoders():
    """Return encoders from ids to vectors, by name, each with a layer that produces the mask."""
    options = {"d_model": 12, "num_heads": 3, "d_ff": 10}
    return {
        "embedding": [TokenEmbedding(11, 12, mask_zero=True), SinusoidalPositions(12), EncoderBlock(**options)],
        "layer": [PaddingMask(), TokenEmbedding(11, 12), LearnedPositions(12, 13), EncoderBlock(**options)],
        "keras": [keras.layers.Embedding(11, 12, mask_zero=True), Stack(EncoderBlock, 2, options)],
        "sublayers": [
            TokenEmbedding(11, 12, mask_zero=True),
            SelfAttention(12, 3),
            FeedForward(12, 10),
            MultiHeadAttention(12, 3),
        ],
        "pre": [
            TokenEmbedding(11, 12, mask_zero=True),
            Residual(MultiHeadAttention(12, 3), "pre"),
            Residual(keras.Sequential([FeedForward(12, 10), keras.layers.Dense(12)]), "pre"),
            EncoderBlock(**options, norm_position="pre", num_kv_heads=1),
        ],
    }


@pytest.mark.parametrize("name", encoders())
def test_a_sequential_encoder_reads_no_padding(name, numpy):
    """In heedful 0.1.0 three more columns of padding moved the outputs of real tokens by up to 0.72."""
    encoder = keras.Sequential(encoders()[name])
    out = numpy(encoder(IDS))
    wider = numpy(encoder(np.pad(IDS, ((0, 0), (0, 3)))))
    np.testing.assert_allclose(wider[:, : IDS.shape[1]][REAL], out[REAL], atol=3e-6)
    embedding = encoder.layers[1 if name == "layer" else 0]
    (table,) = embedding.get_weights()
    table[0] = 50  # the vector of padding
    embedding.set_weights([table])
    np.testing.assert_array_equal(numpy(encoder(IDS))[REAL], out[REAL])


def test_a_keras_mask_gives_the_result_of_an_explicit_one(numpy):
    x = keras.random.normal((2, 7, 12))
    block = EncoderBlock(12, 3, 10)
    masked = keras.Sequential([PaddedVectors(), block])(x)
    np.testing.assert_array_equal(numpy(masked), numpy(block(x, visible=masks.padding(REAL))))


class PaddedVectors(keras.layers.Layer):
    """Attaches the mask of `IDS` to vectors."""

    def call(self, x):
        return ops.copy(x)

    def compute_mask(self, inputs, previous_mask=None):
        return ops.convert_to_tensor(REAL)


def test_the_explicit_mask_wins(numpy):
    x, layer, everything = (
        keras.random.normal((2, 7, 12)),
        MultiHeadAttention(12, 3, causal=True),
        np.ones((7, 7), bool),
    )
    explicit = numpy(layer(PaddedVectors()(x), visible=everything[None, None]))
    np.testing.assert_array_equal(explicit, numpy(layer(x, visible=everything[None, None])))
    assert np.abs(explicit - numpy(layer(x)))[:, 0].max() > 1e-3  # which hides later tokens


def test_masks_that_contradict_each_other_are_refused():
    x = PaddedVectors()(keras.random.normal((2, 7, 12)))
    with pytest.raises(ValueError, match=r"shape \(2, 1, 1, 6\) does not fit.*\(2, 3, 7, 7\)"):
        MultiHeadAttention(12, 3)(x, visible=np.ones((2, 1, 1, 6), bool))


@pytest.mark.parametrize(
    "make",
    [
        lambda: [CausalMask(), MultiHeadAttention(12, 3)],
        lambda: [Residual(keras.Sequential([CausalMask(), MultiHeadAttention(12, 3)]))],
        lambda: [CausalMask(), EncoderBlock(12, 3, 10), EncoderBlock(12, 3, 10)],
        lambda: [EncoderBlock(12, 3, 10, causal=True), EncoderBlock(12, 3, 10, causal=True)],
        lambda: [CausalSelfAttention(12, 3), MultiHeadAttention(12, 3, causal=True, rotary=True)],
    ],
    ids=["layer", "inside a residual", "blocks after a layer", "blocks", "sublayers"],
)
@pytest.mark.parametrize("mask_zero", [True, False])
def test_causal_layers_read_no_later_token_and_no_padding(make, mask_zero, numpy):
    model = keras.Sequential([TokenEmbedding(11, 12, mask_zero=mask_zero), *make()])
    out, changed = numpy(model(IDS)), IDS.copy()
    changed[0, 3] = 10
    again = numpy(model(changed))
    np.testing.assert_array_equal(again[0, :3], out[0, :3])
    assert (np.abs(again - out)[0, 3:5].max(axis=1) > 1e-4).all()


def test_a_causal_layer_hides_later_tokens_of_a_cache(numpy):
    layer = MultiHeadAttention(12, 3, causal=True)
    x = keras.random.normal((2, 7, 12))
    whole, cache, steps = numpy(layer(x)), layer.empty_cache(2, 7), []
    for place, length in ((0, 3), (3, 2), (5, 2)):
        step, cache = layer(x[:, place : place + length], cache=cache, place=place)
        steps.append(numpy(step))
    np.testing.assert_allclose(np.concatenate(steps, axis=1), whole, atol=2e-6)


def test_cross_attention_reads_no_padding_of_its_memory(numpy):
    x, memory = keras.random.normal((2, 5, 12)), keras.random.normal((2, 7, 12))
    for layer in (MultiHeadAttention(12, 3, cross=True), CrossAttention(12, 3), DecoderBlock(12, 3, 10)):
        name = "memory_visible" if isinstance(layer, DecoderBlock) else "visible"
        want = numpy(layer(x, memory=memory, **{name: masks.padding(REAL)}))
        np.testing.assert_array_equal(numpy(layer(x, memory=PaddedVectors()(memory))), want)
        assert np.abs(numpy(layer(x, memory=memory)) - want).max() > 1e-3


@pytest.mark.parametrize("kind", [SelfAttention, CausalSelfAttention, CrossAttention])
def test_sublayers_keep_the_last_attention_weights_on_request(kind, numpy):
    x, memory = keras.random.normal((2, 5, 12)), keras.random.normal((2, 7, 12))
    inputs = [x, memory] if kind is CrossAttention else [x]
    assert kind(12, 3).last_attention_weights is None
    layer = kind(12, 3, keep_weights=True, attention={"head_dim": 8})
    layer(*inputs)
    weights = numpy(layer.last_attention_weights)
    assert weights.shape == (2, 3, 5, 7 if kind is CrossAttention else 5)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    if kind is CausalSelfAttention:
        assert not np.triu(weights[0, 0], 1).any()


def test_a_residual_normalises_and_adds_the_first_of_several_inputs(numpy):
    x, memory = keras.random.normal((2, 5, 12)), keras.random.normal((2, 7, 12))
    attention = MultiHeadAttention(12, 3, cross=True)
    for position in ("pre", "post"):
        residual = Residual(attention, position)
        out = numpy(residual([x, memory]))
        want = numpy(residual.after(x, attention(residual.before(x), memory)))
        np.testing.assert_array_equal(out, want)


def test_a_residual_without_a_sublayer_cannot_be_called():
    with pytest.raises(ValueError, match="Residual without a sublayer"):
        Residual()(keras.random.normal((2, 5, 12)))


LAYERS, WIDTH, HEADS, INNER = 2, 24, 3, 36


def sublayers(cross=False):
    """Return the sublayers of one block as the Keras tutorial builds them: post-norm, masks propagated by Keras."""
    attention = MultiHeadAttention(WIDTH, HEADS)
    if not cross:
        return [Residual(attention), Residual(FeedForward(WIDTH, INNER))]
    causal = Residual(keras.Sequential([CausalMask(), attention]))
    return [causal, Residual(MultiHeadAttention(WIDTH, HEADS, cross=True)), Residual(FeedForward(WIDTH, INNER))]


def by_hand(vocabulary):
    """Build a translator from layers, a Sequential encoder and a functional decoder; return it and its layers."""
    source, target = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    tables = [TokenEmbedding(vocabulary, WIDTH) for _ in range(2)]
    encoder = [layer for _ in range(LAYERS) for layer in sublayers()]
    memory = keras.Sequential([PaddingMask(), tables[0], SinusoidalPositions(WIDTH), *encoder])(source)
    x = keras.Sequential([PaddingMask(), tables[1], SinusoidalPositions(WIDTH)])(target)
    decoder = []
    for _ in range(LAYERS):
        attention, cross, feed_forward = sublayers(cross=True)
        x = feed_forward(cross([attention(x), memory]))
        decoder += [attention, cross, feed_forward]
    projection = keras.layers.Dense(vocabulary)
    return keras.Model([source, target], projection(x)), (tables, encoder + decoder, projection)


def finished(vocabulary):
    sizes = {"num_layers": LAYERS, "d_model": WIDTH, "num_heads": HEADS, "d_ff": INNER}
    return Transformer(vocabulary, vocabulary, tie="none", output_bias=True, norm_epsilon=1e-6, dropout=0.0, **sizes)


def copy_weights(model, tables, residuals, projection):
    """Give the layers built by hand the weights of the finished model."""
    for own, table in zip(tables, (model.source_embedding, model.target_embedding), strict=True):
        own.set_weights(table.get_weights())
    originals = []
    for block in (*model.encoder.blocks, *model.decoder.blocks):
        originals.append((block.attention, block.attention_residual))
        if isinstance(block, DecoderBlock):
            originals.append((block.cross_attention, block.cross_residual))
        originals.append((block.feed_forward, block.feed_forward_residual))
    for residual, (sublayer, original) in zip(residuals, originals, strict=True):
        residual.sublayer.set_weights(sublayer.get_weights())
        residual.norm.set_weights(original.norm.get_weights())
    table, bias = model.output_projection.get_weights()
    projection.set_weights([table.T, bias])


def phrases(count):
    """Return source ids, target ids as the decoder reads them, labels, and the vocabulary's size."""
    pairs = list(phrasebook("train", count))
    tokenizer = Tokenizer.train((text for pair in pairs for text in pair), "word", 500)
    source, target = (tokenizer.encode_batch([pair[side] for pair in pairs]) for side in (0, 1))
    rows = [[*ids, END_ID] for ids in source], [[START_ID, *ids] for ids in target], [[*ids, END_ID] for ids in target]
    padded = [keras.utils.pad_sequences(side, padding="post", dtype="int32") for side in rows]
    return *padded, len(tokenizer)


@pytest.mark.slow
def test_a_model_built_from_layers_trains_like_the_finished_one(numpy):
    """Sequential encoder, functional decoder, Keras masks and `fit`, against `Transformer` with explicit masks."""
    source, target, labels, vocabulary = phrases(96)
    model, (hand, layers) = finished(vocabulary), by_hand(vocabulary)
    copy_weights(model, *layers)
    for each in (model, hand):
        optimizer = keras.optimizers.Adam(1e-3, beta_2=0.98, epsilon=1e-9)
        each.compile(optimizer, TokenCrossentropy(), metrics=[TokenAccuracy()])
    inputs = {"source": source, "target": target}
    before = model.evaluate(inputs, labels, verbose=0), hand.evaluate([source, target], labels, verbose=0)
    np.testing.assert_allclose(before[1], before[0], rtol=1e-5)
    options = {"batch_size": 32, "epochs": 2, "shuffle": False, "verbose": 0}
    histories = model.fit(inputs, labels, **options).history, hand.fit([source, target], labels, **options).history
    np.testing.assert_allclose(histories[1]["loss"], histories[0]["loss"], rtol=1e-4)
    assert histories[0]["loss"][1] < histories[0]["loss"][0]
    wider = [np.pad(side, ((0, 0), (0, 3))) for side in (source, target)]
    out, again = hand.predict([source, target], verbose=0), hand.predict(wider, verbose=0)
    np.testing.assert_allclose(again[:, : target.shape[1]][target != 0], out[target != 0], atol=1e-5)
