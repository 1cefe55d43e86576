"""Matrix products in JAX, in the forms for which XLA has fast kernels on a CPU.

Axes: M rows, D input width, U units.

XLA's library has bfloat16 routines for float32 sums, if both matrices are row-major and the product contracts the last
axis of the left one. XLA first widens every other form to float32, which is slower than float32 itself. These include
products with a bfloat16 result, and all gradients that JAX derives for `kernel`.
"""

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint

from heedful.backend.devices import jax_on_cpu
from heedful.backend.tensors import Tensor

# XLA calls its library for int8 products of several rows. For a single row it generates code, which is slower than the
# library for four.
MIN_INT8_ROWS = 4
ROW_MAJOR = Layout((0, 1))


@jax.custom_vjp
def affine(x: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
    """Return x (M, D) times kernel (D, U) plus bias (U,) if given; all in bfloat16."""
    product = multiply(x, kernel)
    return (product if bias is None else product + bias).astype(x.dtype)


def _forward(x, kernel, bias):
    return affine(x, kernel, bias), (x, kernel, bias is None)


def _backward(residuals, upstream):
    x, kernel, no_bias = residuals
    grad_x = _dot(upstream, kernel, 1, 1).astype(x.dtype)
    grad_kernel = multiply_transposed(x, upstream).astype(kernel.dtype)
    # summed in float32: in bfloat16 the sum takes XLA longer than a product
    grad_bias = None if no_bias else upstream.astype("float32").sum(axis=0).astype(upstream.dtype)
    return grad_x, grad_kernel, grad_bias


affine.defvjp(_forward, _backward)


@jax.jit  # compiled as one program, even when called eagerly
def multiply(x: Tensor, y: Tensor) -> Tensor:
    """Return x (M, D) times y (D, U): float32 for bfloat16, int32 for int8."""
    rows = x.shape[0]
    if x.dtype == "int8" and rows < MIN_INT8_ROWS and jax_on_cpu():
        x = jnp.pad(x, ((0, MIN_INT8_ROWS - rows), (0, 0)))
    return _dot(x, y, 1, 0)[:rows]


def multiply_transposed(x: Tensor, y: Tensor) -> Tensor:
    """Return x (M, D) transposed, times y (M, U): float32 (D, U)."""
    if jax_on_cpu():
        return _dot(with_layout_constraint(x.T, ROW_MAJOR), y, 1, 0)
    return _dot(x, y, 0, 0)


def split_product(x: Tensor, kernel: Tensor, parts: int) -> Tensor:
    """Return a row x (1, D) times kernel (D, U), split along D into `parts` that are multiplied in parallel."""
    depth, units = kernel.shape
    shares = x.reshape(parts, 1, -1), kernel.reshape(parts, depth // parts, units)
    return jnp.sum(jax.lax.dot_general(*shares, (((2,), (1,)), ((0,), (0,)))), axis=0)


def _dot(x, y, x_axis, y_axis):
    """Return x times y, summed over `x_axis` of x and `y_axis` of y."""
    sum_dtype = "int32" if x.dtype == "int8" else "float32"
    product = jax.lax.dot_general(x, y, (((x_axis,), (y_axis,)), ((), ())), preferred_element_type=sum_dtype)
    # XLA may choose a column-major result to suit a later operation; a bfloat16 product with such a result fails at run
    # time.
    return with_layout_constraint(product, ROW_MAJOR) if jax_on_cpu() and x.dtype == "bfloat16" else product
