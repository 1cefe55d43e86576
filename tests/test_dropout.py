"""Dropout: the random bits, their independence, and equal draws on every backend."""

import keras
import numpy as np
import pytest
from keras import ops

from heedful.layers.dropout import Dropout, draws

MASK = 2**32 - 1


def hashed(number, between=0):
    """Return the hash of one 32-bit number, in Python's integers."""
    number = (number ^ number >> 16) * 0x7FEB352D & MASK
    number ^= between
    number = (number ^ number >> 15) * 0x846CA68B & MASK
    return number ^ number >> 16


def drawn(shape, seed, count, numpy):
    state = ops.convert_to_tensor(np.array([seed, count], "uint32"))
    return numpy(draws(shape, state)).view("uint32")


def test_draws_equal_the_hash_in_python_integers(numpy):
    """Guards against backends that shift signed numbers or overflow in different ways."""
    seed, count = 2**31 - 3, 5
    before, between = (hashed(count ^ hashed(seed ^ salt)) for salt in (0x9E3779B9, 0x85EBCA6B))
    want = [hashed((place + before) & MASK, between) for place in range(3 * 5 * 7)]
    np.testing.assert_array_equal(drawn((3, 5, 7), seed, count, numpy).ravel(), want)


def bits(seed, count, numpy, places=2**16):
    return np.unpackbits(drawn((places,), seed, count, numpy).view("uint8")).reshape(places, 32)


@pytest.mark.any_backend
def test_bits_are_fair_and_uncorrelated(numpy):
    """Within five standard deviations: every bit, and every pair of bits at places 0, 1, 2, 15 and 128 apart."""
    own = bits(7, 1, numpy) * 2.0 - 1
    bound = 5 / np.sqrt(len(own))
    assert np.abs(own.mean(0)).max() < bound
    for apart in (0, 1, 2, 15, 128):
        together = own[: len(own) - apart].T @ own[apart:] / len(own)
        assert np.abs(together - (np.eye(32) if apart == 0 else 0)).max() < bound, apart


@pytest.mark.any_backend
@pytest.mark.parametrize("other", [(7, 2), (8, 1), (1, 7), (7 ^ 0x9E3779B9 >> 1, 1)])
def test_calls_and_seeds_draw_independently(other, numpy):
    own, theirs = (bits(*state, numpy) * 2.0 - 1 for state in ((7, 1), other))
    assert np.abs(own.T @ theirs / len(own)).max() < 5 / np.sqrt(len(own))
    # nor is one a permutation of the other
    sets = (set(drawn((4096,), *state, numpy).tolist()) for state in ((7, 1), other))
    assert len(set.intersection(*sets)) < 8


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.999])
def test_dropout_drops_its_share_and_scales_the_rest(rate, numpy):
    layer, count = Dropout(rate, seed=3), 211 * 499
    result = numpy(layer(ops.ones((211, 499)), training=True))
    assert abs((result == 0).mean() - rate) < 5 * np.sqrt(rate * (1 - rate) / count)
    np.testing.assert_allclose(result[result != 0], 1 / (1 - rate), rtol=1e-6)
    again = numpy(layer(ops.ones((211, 499)), training=True))
    both = ((result == 0) & (again == 0)).mean()
    assert abs(both - rate**2) < 5 * np.sqrt(rate**2 * (1 - rate**2) / count)


def test_dropout_is_off_in_inference_and_at_rate_0(normal, numpy):
    x = normal(3, 5)
    np.testing.assert_array_equal(numpy(Dropout(0.5)(x)), x)
    np.testing.assert_array_equal(numpy(Dropout(0.0)(x, training=True)), x)
    assert not Dropout(0.0).variables
    with pytest.raises(ValueError, match="rate"):
        Dropout(1.0)


def test_the_gradient_passes_where_the_input_passed(normal, numpy):
    """With dropout before a dense layer, the gradient of its kernel is the scaled sum of the kept inputs."""
    x = normal(7, 31)
    model = keras.Sequential([keras.layers.Input((31,)), Dropout(0.4, seed=11), keras.layers.Dense(1, use_bias=False)])
    model.compile(keras.optimizers.SGD(1.0), loss=lambda y, prediction: ops.sum(prediction))
    before = numpy(model.layers[-1].kernel)
    kept = np.where(numpy(Dropout(0.4, seed=11)(ops.ones((7, 31)), training=True)) != 0, x / 0.6, 0)
    model.fit(x, np.zeros((7, 1)), batch_size=7, shuffle=False, verbose=0)
    np.testing.assert_allclose(before - numpy(model.layers[-1].kernel), kept.sum(0)[:, None], rtol=1e-4, atol=1e-5)


@pytest.mark.any_backend
def test_a_layer_is_restored_from_its_config():
    config = Dropout(0.3, seed=5, name="dropped").get_config()
    assert Dropout.from_config(config).get_config() == config
