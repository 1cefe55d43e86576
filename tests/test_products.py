"""Matrix products and their gradients are correct on every backend."""

import numpy as np
import pytest
from keras import ops

from heedful import backend
from tests.gradients import gradients

ERROR = {"float32": 1e-5, "bfloat16": 2**-7}  # relative to the largest result


@pytest.fixture
def rounded(normal):
    """Draw random arrays that bfloat16 represents exactly, so only the product can differ."""
    return lambda *shape: np.round(16 * normal(*shape)).clip(-64, 64) / 16


def near(found, wanted, dtype):
    np.testing.assert_allclose(found, wanted, atol=ERROR[dtype] * np.abs(wanted).max())


@pytest.mark.parametrize("dtype", ERROR)
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("rows", [1, 37])
def test_an_affine_map_and_its_gradients_equal_those_of_numpy(rounded, dtype, with_bias, rows):
    x, kernel, upstream = rounded(rows, 26), rounded(26, 11), rounded(rows, 11)
    bias = [rounded(11)] if with_bias else []

    def total(*arrays):
        made = backend.affine(*(ops.cast(array, dtype) for array in arrays))
        assert made.dtype == ops.cast(arrays[0], dtype).dtype
        return ops.sum(ops.cast(made, "float32") * ops.convert_to_tensor(upstream))

    value, (by_x, by_kernel, *by_bias) = gradients(total, x, kernel, *bias)
    made = x @ kernel + sum(bias)
    near(value, (made * upstream).sum(), dtype)
    near(by_x, upstream @ kernel.T, dtype)
    near(by_kernel, x.T @ upstream, dtype)
    for found in by_bias:
        near(found, upstream.sum(axis=0), dtype)


@pytest.mark.parametrize("dtype", ERROR)
def test_products_are_returned_in_float32(rounded, dtype, numpy):
    x, y, z = rounded(301, 26), rounded(26, 11), rounded(301, 11)
    narrow = [ops.cast(array, dtype) for array in (x, y, z)]
    made, turned = backend.multiply(*narrow[:2]), backend.multiply_transposed(narrow[0], narrow[2])
    for found, wanted in ((made, x @ y), (turned, x.T @ z)):
        assert "float32" in str(found.dtype)
        near(numpy(found), wanted, "float32" if backend.NAME == "jax" else dtype)


@pytest.mark.skipif(backend.NAME != "jax", reason="inspects a jaxpr")
def test_only_bfloat16_has_a_custom_gradient_on_a_cpu(rounded):
    import jax

    x, kernel = rounded(37, 26), rounded(26, 11)

    def traced(dtype):
        return str(jax.make_jaxpr(backend.affine)(*(ops.cast(array, dtype) for array in (x, kernel))))

    assert "custom_vjp_call" in traced("bfloat16")
    assert "layout_constraint" in traced("bfloat16")
    assert "custom_vjp_call" not in traced("float32")


@pytest.mark.skipif(backend.NAME != "jax", reason="depends on XLA")
def test_a_bfloat16_product_can_be_transposed(rounded, optimized):
    """XLA prefers a column-major product before a transposition, but has no bfloat16 kernel for that.

    Only processors with bfloat16 instructions take the path that fails.
    """
    import jax

    x, kernel, upstream = rounded(2048, 128), rounded(128, 256), rounded(256, 2048)

    def total(x, kernel):
        made = backend.affine(ops.cast(x, "bfloat16"), ops.cast(kernel, "bfloat16"))
        return ops.sum(ops.cast(ops.transpose(made), "float32") * ops.convert_to_tensor(upstream))

    by_x, by_kernel = jax.jit(jax.grad(total, argnums=(0, 1)))(x, kernel)
    near(by_x, upstream.T @ kernel.T, "bfloat16")
    near(by_kernel, x.T @ upstream.T, "bfloat16")
    turned = jax.jit(lambda x, kernel: ops.transpose(backend.multiply(x, kernel)))
    near(turned(*(ops.cast(array, "bfloat16") for array in (x, kernel))), (x @ kernel).T, "bfloat16")
