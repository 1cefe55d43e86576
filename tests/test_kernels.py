"""Attention, norms and relu of every backend equal the usual formulas, and so do their gradients."""

import numpy as np
import pytest
from keras import ops

import heedful
from heedful import backend
from heedful.backend import kernels
from heedful.layers import attention_weights, masks
from heedful.layers.norms import LayerNorm, RMSNorm
from tests.gradients import gradients

SEGMENTS = np.array([[1, 1, 1, 2, 2, 0, 0], [1, 2, 2, 2, 2, 3, 3]])
VISIBLE = {
    "everything": None,
    "padding": masks.padding(SEGMENTS != 0),
    "segments": masks.same_segment(SEGMENTS),
    "future": masks.causal(ops.arange(7), ops.arange(7)),
    "by head": np.random.default_rng(1).random((2, 6, 7, 7)) < 0.7,
}


def explicit(query, keys, values, visible):
    """Compute attention step by step as in the paper, with repeated value heads."""
    weights = attention_weights(query, keys, visible)
    return ops.einsum("bnts,bsnh->btnh", weights, ops.repeat(values, query.shape[2] // values.shape[2], axis=2))


@pytest.mark.parametrize("visible", VISIBLE)
@pytest.mark.parametrize("kv_heads", [1, 2, 6])
def test_attention_and_its_gradients_match_the_formula(normal, kv_heads, visible):
    query, keys, values, upstream = (
        normal(2, 7, heads, size) for heads, size in ((6, 5), (kv_heads, 5), (kv_heads, 5), (6, 5))
    )

    def total(attend):
        return lambda *arrays: ops.sum(attend(*arrays, VISIBLE[visible]) * ops.convert_to_tensor(upstream))

    value, found = gradients(total(backend.attend), query, keys, values)
    wanted_value, wanted = gradients(total(explicit), query, keys, values)
    np.testing.assert_allclose(value, wanted_value, rtol=1e-4)
    for one, other in zip(found, wanted, strict=True):
        assert np.abs(other).max() > 0.1
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_hidden_keys_and_values_get_no_gradient(normal):
    """Bitwise: the gradients of a hidden key and its value are exactly zero."""
    arrays = [normal(2, 7, 6, 5) for _ in range(3)]
    visible = masks.padding(SEGMENTS != 0)
    _, (_, by_keys, by_values) = gradients(lambda *x: ops.sum(backend.attend(*x, visible) ** 2), *arrays)
    for gradient in (by_keys, by_values):
        assert not np.asarray(gradient)[0, 5:].any()
        assert np.asarray(gradient)[0, :5].any()


@pytest.mark.parametrize("with_shift", [False, True])
def test_layer_norm_and_its_gradients_match_the_formula(normal, with_shift):
    x, upstream, gain = normal(3, 5, 11) * 2 + 1, normal(3, 5, 11), normal(11)
    shift = [normal(11)] if with_shift else []

    def total(norm):
        return lambda x, gain, *shift: ops.sum(norm(x, gain, *(shift or [None])) * ops.convert_to_tensor(upstream))

    def by_steps(x, gain, shift):
        centred = x - ops.mean(x, axis=-1, keepdims=True)
        scaled = gain * centred / ops.sqrt(ops.mean(centred**2, axis=-1, keepdims=True) + 1e-3)
        return scaled if shift is None else scaled + shift

    value, found = gradients(total(lambda *arrays: backend.layer_norm(*arrays, 1e-3)), x, gain, *shift)
    wanted_value, wanted = gradients(total(by_steps), x, gain, *shift)
    np.testing.assert_allclose(value, wanted_value, rtol=1e-4)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


@pytest.mark.parametrize("shape", [(3, 5, 11), (3, 5, 2, 11)], ids=["vectors", "heads"])
def test_rms_norm_and_its_gradients_match_the_formula(normal, shape):
    x, upstream, gain = normal(*shape) * 2 + 1, normal(*shape), normal(11)

    def total(norm):
        return lambda x, gain: ops.sum(norm(x, gain, 1e-3) * ops.convert_to_tensor(upstream))

    def by_steps(x, gain, epsilon):
        return gain * x / ops.sqrt(ops.mean(x**2, axis=-1, keepdims=True) + epsilon)

    value, computed = gradients(total(backend.rms_norm), x, gain)
    wanted_value, wanted = gradients(total(by_steps), x, gain)
    np.testing.assert_allclose(value, wanted_value, rtol=1e-4)
    for one, other in zip(computed, wanted, strict=True):
        assert np.abs(other).max() > 0.1
        np.testing.assert_allclose(one, other, atol=2e-5)


def test_relu_and_its_gradient_match_the_formula(numpy):
    x = np.array([-2.0, -0.0, 0.0, 1e-30, 3.0], "float32")
    value, (found,) = gradients(lambda x: ops.sum(backend.relu(x) * ops.convert_to_tensor(x + 5)), x)
    np.testing.assert_allclose(value, 3 * 8)
    np.testing.assert_allclose(found, [0, 0, 0, 5, 11], rtol=1e-6)
    assert np.isnan(numpy(backend.relu(np.array([np.nan], "float32")))).all()  # otherwise training would not notice NaN


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_results_keep_the_dtype_of_their_inputs(normal, dtype, numpy):
    """In bfloat16, sums are computed in float32 and results are rounded once."""
    query, keys, values = (ops.cast(normal(2, 7, 6, 5), dtype) for _ in range(3))
    made = backend.attend(query, keys, values)
    wide = explicit(*(ops.cast(x, "float32") for x in (query, keys, values)), None)
    layers = [LayerNorm(dtype=dtype), RMSNorm(dtype=dtype)]
    x = ops.cast(normal(3, 5, 11), dtype)
    for layer in layers:
        layer.build((None, None, 11))
    normalised, divided = (layer(x) for layer in layers)
    assert made.dtype == query.dtype
    assert normalised.dtype == divided.dtype == x.dtype
    error = {"float32": 1e-5, "bfloat16": 2e-2}[dtype]
    np.testing.assert_allclose(numpy(ops.cast(made, "float32")), numpy(wide), atol=error)
    assert np.abs(numpy(ops.cast(normalised, "float32")).var(axis=-1) - 1).max() < 0.02
    assert np.abs((numpy(ops.cast(divided, "float32")) ** 2).mean(axis=-1) - 1).max() < 0.02


@pytest.mark.skipif(backend.NAME != "jax", reason="tests the custom gradients for JAX")
def test_each_array_that_a_gradient_needs_is_kept_only_once(normal):
    """Attention keeps its inputs and weights, a norm the normalised vectors, and relu its result."""
    import jax

    def kept(function, *arrays):
        return [x.shape for x in jax.tree.leaves(jax.vjp(function, *arrays)[1]) if getattr(x, "size", 0) > 100]

    arrays = [normal(2, 7, 6, 5) for _ in range(3)]
    assert sorted(kept(backend.attend, *arrays)) == [(2, 6, 7, 7), *[(2, 7, 6, 5)] * 3]
    assert kept(lambda x: backend.layer_norm(x, np.ones(11, "float32"), None, 1e-6), normal(3, 5, 11)) == [(3, 5, 11)]
    assert kept(lambda x: backend.rms_norm(x, np.ones(11, "float32"), 1e-6), normal(3, 5, 11)) == [(3, 5, 11)]
    assert kept(backend.relu, normal(3, 5, 11)) == [(3, 5, 11)]


@pytest.mark.skipif(backend.NAME != "jax", reason="tests a program that JAX compiles")
@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_xla_keeps_no_further_arrays_for_the_gradient(normal, optimized, kind):
    """Between two products, XLA keeps neither relu's argument nor a broadcast intermediate of a norm."""
    import jax

    x, kernels = normal(64, 16, 32), [normal(32, 128), normal(128, 32)] * 8
    gain, shift = np.ones(32, "float32"), np.zeros(32, "float32")

    def norm(x):
        return backend.layer_norm(x, gain, shift, 1e-6) if kind == "layer" else backend.rms_norm(x, gain, 1e-6)

    def total(x, *kernels):
        for inner, outer in zip(kernels[::2], kernels[1::2], strict=True):
            change = backend.affine(backend.relu(backend.affine(x.reshape(-1, 32), inner)), outer)
            x = norm(x + change.reshape(x.shape))
        return ops.sum(x**3)

    program = jax.jit(jax.grad(total, argnums=range(1, 17))).lower(x, *kernels).compile()
    arrays = program.memory_analysis().temp_size_in_bytes / x.nbytes
    assert arrays < 8 * (4 + 2) + 16  # a relu's result is 4 times as large as x; a norm keeps its result and vectors


def test_a_model_uses_attention_and_norms_of_the_backend(monkeypatch, normal):
    called = []
    for name in ("attend", "layer_norm", "rms_norm"):
        original = getattr(backend, name)
        monkeypatch.setattr(
            backend, name, lambda *args, original=original, name=name: called.append(name) or original(*args)
        )
    model = heedful.Transformer(11, 13, num_layers=1, d_model=10, num_heads=2, d_ff=7, qk_norm=True)
    model({"source": np.array([[4, 5]]), "target": np.array([[2, 6]])})
    assert [called.count(name) for name in ("attend", "layer_norm", "rms_norm")] == [3, 5, 6]


@pytest.mark.skipif(backend.NAME != "jax", reason="a form of JAX's attention")
@pytest.mark.parametrize("shape", [None, (3, 1, 1, 7), (1, 1, 5, 7), (3, 1, 5, 7), (5, 7)])
@pytest.mark.parametrize("heads", [6, 2])
def test_attention_of_an_accelerator_equals_that_of_a_cpu(shape, heads, rng, monkeypatch):
    query = rng.standard_normal((3, 5, 6, 4)).astype(np.float32)
    keys, values = (rng.standard_normal((3, 7, heads, 4)).astype(np.float32) for _ in range(2))
    visible = None if shape is None else np.asarray(rng.random(shape) < 0.6) | (np.arange(7) == 0)
    wanted = backend.attend(*map(ops.convert_to_tensor, (query, keys, values)), visible)
    monkeypatch.setattr(kernels, "jax_on_cpu", lambda: False)
    found = backend.attend(*map(ops.convert_to_tensor, (query, keys, values)), visible)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
