"""The smaller parts: positions, embeddings, feed-forward, projections, residuals."""

import keras
import numpy as np
import pytest
from keras import ops

from heedful import Transformer, backend
from heedful.backend.products import LARGE_KERNEL
from heedful.layers import (
    DecoderBlock,
    EncoderBlock,
    FeedForward,
    LearnedPositions,
    Projection,
    Residual,
    SelfAttention,
    SinusoidalPositions,
    Stack,
    TokenEmbedding,
    rotate,
    sinusoid,
)
from heedful.layers.initial_values import without_initial_values


def test_sinusoid_is_the_papers_formula(numpy):
    encoding = numpy(sinusoid(np.arange(11), 6))
    want = np.empty((11, 6))
    for position in range(11):
        for i in range(3):
            angle = position / 10000 ** (2 * i / 6)
            want[position, 2 * i], want[position, 2 * i + 1] = np.sin(angle), np.cos(angle)
    np.testing.assert_allclose(encoding, want, atol=1e-6)


def test_marians_sinusoids_have_their_endpoint(numpy):
    """The rates of Marian, src/tensors/tensor_operators: exp(-i log(10000) / (D / 2 - 1)), sines first."""
    encoding = numpy(sinusoid(np.arange(11), 6, concatenated=True, endpoint=True))
    angles = np.arange(11)[:, None] * np.exp(-np.arange(3) * np.log(10000) / 2)
    np.testing.assert_allclose(encoding, np.concatenate([np.sin(angles), np.cos(angles)], 1), atol=1e-6)


def test_concatenated_sinusoids_are_a_permutation_of_interleaved_ones(numpy):
    interleaved, concatenated = (numpy(sinusoid(np.arange(5), 6, flag)) for flag in (False, True))
    np.testing.assert_array_equal(concatenated, interleaved[:, [0, 2, 4, 1, 3, 5]])


@pytest.mark.parametrize("make", [lambda: SinusoidalPositions(6), lambda: LearnedPositions(6, 13)])
def test_positions_start_at_the_given_index(make, normal, numpy):
    """Guards cached decoding: the fourth token alone must get the fourth position."""
    layer, x = make(), normal(2, 7, 6)
    whole = numpy(layer(x))
    np.testing.assert_allclose(numpy(layer(x[:, 3:4], positions=ops.arange(3, 4))), whole[:, 3:4], atol=1e-6)
    each = ops.convert_to_tensor([[3], [5]])  # sentences at different decode steps
    np.testing.assert_allclose(
        numpy(layer(x[:, 3:4], positions=each))[1], numpy(layer(x[:, 3:4], positions=each[1]))[1]
    )


def test_learned_positions_refuse_a_longer_input_than_max_length(normal):
    with pytest.raises(ValueError, match="max_length is 5"):
        LearnedPositions(6, 5)(normal(2, 7, 6))


def test_positions_that_were_never_learned_and_odd_widths_are_refused(normal):
    if backend.NAME != "torch":  # which checks indices itself
        with pytest.raises(ValueError, match="Positions must be 0 to 3, not 2 to 4"):
            LearnedPositions(6, 4)(normal(2, 3, 6), positions=np.array([2, 3, 4]))
    for concatenated in (False, True):
        with pytest.raises(ValueError, match=r"d_model \(5\) must be even"):
            sinusoid(np.arange(4), 5, concatenated)


def test_rotation_keeps_norms_and_rotates_by_the_position(normal, numpy):
    x = normal(2, 5, 3, 4)
    turned = numpy(rotate(ops.convert_to_tensor(x), np.arange(5)))
    np.testing.assert_allclose(np.linalg.norm(turned, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-5)
    np.testing.assert_allclose(turned[:, 0], x[:, 0], atol=1e-6)
    # dimensions 0 and 2 are rotated together, by one radian per position
    np.testing.assert_allclose(turned[:, 1, :, 0], x[:, 1, :, 0] * np.cos(1) - x[:, 1, :, 2] * np.sin(1), atol=1e-5)


def test_embeddings_are_scaled_and_project_back(numpy):
    layer = TokenEmbedding(11, 5)
    layer.build((None, None))
    table = numpy(layer.embeddings)
    np.testing.assert_allclose(numpy(layer(np.array([[3, 7]])))[0], table[[3, 7]] * np.sqrt(5), rtol=1e-5)
    np.testing.assert_allclose(
        numpy(layer.project(ops.convert_to_tensor(table[None]))), (table @ table.T)[None], atol=1e-5
    )


def test_projection_equals_keras_dense(normal, numpy):
    ours, theirs = Projection(7), keras.layers.Dense(7)
    x = normal(2, 3, 5)
    ours.build((None, None, 5))
    theirs.build((None, None, 5))
    theirs.set_weights(ours.get_weights())
    np.testing.assert_allclose(numpy(ours(x)), numpy(theirs(x)), atol=1e-6)


def test_gated_feed_forward_multiplies_by_its_gate(normal, numpy):
    layer, x = FeedForward(6, 10, "swiglu"), normal(2, 3, 6)
    out = numpy(layer(x))
    inner, gate = x @ numpy(layer.inner.kernel), x @ numpy(layer.gate.kernel)
    want = (inner / (1 + np.exp(-inner)) * gate) @ numpy(layer.outer.kernel)
    np.testing.assert_allclose(out, want, atol=1e-5)


def test_feed_forward_drops_inner_values_in_training(normal, numpy):
    layer, x = FeedForward(6, 200, dropout=0.4), normal(2, 3, 6)
    layer(x)
    inner = np.maximum(x @ numpy(layer.inner.kernel), 0)
    layer.outer.set_weights([np.ones((200, 6), "float32"), np.zeros(6, "float32")])
    plain, dropped = numpy(layer(x))[..., 0], numpy(layer(x, training=True))[..., 0]
    np.testing.assert_allclose(plain, inner.sum(-1), rtol=1e-4)
    assert (np.abs(dropped - plain) > 1e-3).all()
    many = np.mean([numpy(layer(x, training=True))[..., 0] for _ in range(100)], axis=0)
    np.testing.assert_allclose(many, plain, rtol=0.15)


def test_feed_forward_refuses_an_unknown_activation():
    with pytest.raises(ValueError, match="Unknown activation 'tanhh'"):
        FeedForward(6, 10, "tanhh")


def test_post_norm_normalises_the_sum_and_pre_norm_the_input(normal, numpy):
    x, change = ops.convert_to_tensor(normal(2, 3, 30)), ops.convert_to_tensor(normal(2, 3, 30))
    post, pre = Residual(norm_position="post"), Residual(norm_position="pre")
    for layer in (post, pre):
        layer.build((None, None, 30))
    np.testing.assert_array_equal(numpy(post.before(x)), numpy(x))
    assert np.abs(numpy(post.after(x, change)).mean(-1)).max() < 1e-5
    assert np.abs(numpy(pre.before(x)).mean(-1)).max() < 1e-5
    np.testing.assert_allclose(numpy(pre.after(x, change)), numpy(x + change), atol=1e-6)


@pytest.mark.any_backend
@pytest.mark.parametrize("rows", [1, 3])
def test_a_large_projection_of_few_rows_equals_a_numpy_product(rng, numpy, rows):
    """Guards the separate code path of a single row on a CPU."""
    layer = Projection(520, name="projection")
    x = rng.normal(size=(1, rows, 1024)).astype("float32")
    made = numpy(layer(x))
    kernel = numpy(layer.kernel).astype("float64")
    assert kernel.size > LARGE_KERNEL
    np.testing.assert_allclose(made, x @ kernel, atol=2e-5)


@pytest.mark.any_backend
def test_gradients_of_a_repeated_id_are_summed(numpy):
    """Guards Adam's second moment, the square of the sum; TensorFlow would pass the two gradients separately."""
    layer = TokenEmbedding(7, 6)
    model = keras.Sequential([layer])
    optimizer = keras.optimizers.Adam(beta_2=0.9)
    model.compile(optimizer, "mse")
    ids = np.array([[3, 3, 5]], "int32")
    table = numpy(layer(ids) * 0 + layer.embeddings[3])[0, 0]
    model.fit(ids, np.zeros((1, 3, 6), "float32"), verbose=0)
    once = 6**0.5 * 2 * (6**0.5 * table) / 18  # gradient of the mean square of 3 x 6 numbers
    memory = next(numpy(v) for v in optimizer.variables if "velocity" in v.path)
    np.testing.assert_allclose(memory[3], 0.1 * (2 * once) ** 2, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.any_backend
def test_blocks_work_in_a_functional_model_that_is_saved_and_loaded(normal, numpy, tmp_path):
    options = {"d_model": 36, "num_heads": 6, "d_ff": 14, "norm_position": "pre", "norm": "rms", "num_kv_heads": 2}
    read, written = keras.Input((None, 36)), keras.Input((None, 36))
    memory = Stack(EncoderBlock, 2, options)(read)
    x = DecoderBlock(**options, rotary=True, activation="swiglu")(written, memory=memory)
    model = keras.Model([read, written], Stack(DecoderBlock, 1, options)(x, memory=memory))
    inputs = [normal(2, 5, 36), normal(2, 7, 36)]
    before = numpy(model(inputs))
    assert before.shape == (2, 7, 36)
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(numpy(keras.saving.load_model(tmp_path / "model.keras")(inputs)), before)


@pytest.mark.parametrize("position", ["pre", "post"])
def test_parts_of_a_layer_may_be_called_before_the_layer(position, normal, numpy):
    layer = SelfAttention(8, 2, norm_position=position)
    x = ops.convert_to_tensor(normal(2, 3, 8))
    if position == "pre":
        by_hand = x + layer.attention(layer.residual.norm(x))
    else:
        by_hand = layer.residual.norm(x + layer.attention(x))
    np.testing.assert_allclose(numpy(layer(x)), numpy(by_hand), atol=1e-6)


def test_a_model_that_will_be_loaded_computes_no_initial_values(numpy):
    """But seeds have theirs, and a model built afterwards too."""
    with without_initial_values():
        model = Transformer(11, 13, num_layers=1, d_model=8, num_heads=2, d_ff=16, positions="learned", dropout=0.1)
    assert not any(numpy(weight).any() for weight in model.weights)
    seeds = [variable for variable in model.variables if "seed" in variable.path]
    assert seeds
    assert all(numpy(seed).any() for seed in seeds)
    again = Transformer(11, 13, num_layers=1, d_model=8, num_heads=2, d_ff=16, positions="learned", norm="layer")
    drawn = [weight for weight in again.weights if weight.path.endswith(("kernel", "embeddings", "gamma"))]
    assert all(numpy(weight).any() for weight in drawn)
