"""Matrix products of JAX, brought into the forms for which XLA has fast kernels on a CPU.

Axes: M rows, D input width, U units.

For bfloat16 XLA's library has kernels (on processors with units for such products four times as fast as float32) if
the sums are float32, both matrices lie row by row, and the left one is summed along its rows. Every other form is
widened to float32 first and takes longer than float32 itself: so results that are bfloat16 too, and all gradients of
kernels, as JAX derives them. Milliseconds on two cores (machine I of docs/figures.md) for 4,096 x 128 to 384:

    | | float32 | bfloat16 as derived | bfloat16 as here |
    | x @ kernel | 1.7 | 2.2 | 0.4 |
    | gradient of x | 1.6 | 2.4 | 0.6 |
    | gradient of the kernel | 2.4 | 3.0 | 0.7 |
"""

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint

from heedful.backend.hardware import jax_on_cpu

# A single row of int8 XLA multiplies by code of its own. More it leaves to its library, which makes four rows in less
# than half the time.
FEWEST_ROWS = 4
ROW_BY_ROW = Layout((0, 1))


@jax.custom_vjp
def affine(x, kernel, bias):
    """Return x (M, D) times kernel (D, U) plus bias (U,), if there is one: bfloat16 all."""
    product = multiply(x, kernel)
    return (product if bias is None else product + bias).astype(x.dtype)


def _forward(x, kernel, bias):
    return affine(x, kernel, bias), (x, kernel, bias is None)


def _backward(kept, upstream):
    x, kernel, no_bias = kept
    by_x = _dot(upstream, kernel, 1, 1).astype(x.dtype)
    by_kernel = multiply_transposed(x, upstream).astype(kernel.dtype)
    # summed in float32: the sum of bfloat16 takes XLA longer than a product
    by_bias = None if no_bias else upstream.astype("float32").sum(axis=0).astype(upstream.dtype)
    return by_x, by_kernel, by_bias


affine.defvjp(_forward, _backward)


@jax.jit  # or its parts would be programs of their own where nothing around it is compiled
def multiply(x, y):
    """Return x (M, D) times y (D, U): bfloat16 to float32, int8 to int32."""
    rows = x.shape[0]
    if x.dtype == "int8" and rows < FEWEST_ROWS and jax_on_cpu():
        x = jnp.pad(x, ((0, FEWEST_ROWS - rows), (0, 0)))
    return _dot(x, y, 1, 0)[:rows]


def multiply_transposed(x, y):
    """Return the transpose of x (M, D) times y (M, U): float32 (D, U)."""
    if jax_on_cpu():
        return _dot(with_layout_constraint(x.T, ROW_BY_ROW), y, 1, 0)
    return _dot(x, y, 0, 0)


def in_shares(x, kernel, parts):
    """Return a row x (1, D) times kernel (D, U), multiplied in `parts` of D side by side."""
    depth, units = kernel.shape
    shares = x.reshape(parts, 1, -1), kernel.reshape(parts, depth // parts, units)
    return jnp.sum(jax.lax.dot_general(*shares, (((2,), (1,)), ((0,), (0,)))), axis=0)


def _dot(x, y, x_axis, y_axis):
    """Return the sums over an axis of x and one of y."""
    sums = "int32" if x.dtype == "int8" else "float32"
    product = jax.lax.dot_general(x, y, (((x_axis,), (y_axis,)), ((), ())), preferred_element_type=sums)
    # Left to itself XLA may lay the result out column by column, where something later likes that better; a product
    # of bfloat16 like that then fails when it runs.
    return with_layout_constraint(product, ROW_BY_ROW) if jax_on_cpu() and x.dtype == "bfloat16" else product
