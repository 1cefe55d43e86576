"""Matrix products, in the form in which a backend makes them fastest, and the lookup of rows.

Axes: M rows, D input width, U units.
"""

import keras
from keras import ops

from heedful.backend.hardware import NAME, jax_on_cpu, workers

if NAME == "jax":
    from heedful.backend import xla_products
elif NAME == "tensorflow":
    import tensorflow

LARGE_KERNEL = 1 << 18  # weights, from which on all cores read it for a single row


def affine(x, kernel, bias=None):
    """Return x (M, D) times kernel (D, U), plus bias (U,) where there is one; all of one type.

    On JAX on a CPU bfloat16 is multiplied as `xla_products` says. A single row XLA multiplies on one core there, as
    fast as that reads the kernel; of a large kernel each core gets its share of D: two thirds of the time for the
    products of a step of size `base`.
    """
    if jax_on_cpu() and x.dtype == "bfloat16":
        return xla_products.affine(x, *(None if y is None else ops.convert_to_tensor(y) for y in (kernel, bias)))
    depth, parts = kernel.shape[0], workers()
    if x.shape[0] != 1 or parts == 1 or depth % parts or depth * kernel.shape[1] < LARGE_KERNEL:
        product = ops.matmul(x, kernel)
    else:
        product = xla_products.in_shares(x, ops.convert_to_tensor(kernel), parts)
    return product if bias is None else product + bias


def look_up(table, ids):
    """Return the rows `ids` (B, T) of a table (V, D): (B, T, D). The gradient of the table is one array.

    TensorFlow would give it as a list of rows, in which an id comes as often as in the text. Optimizers of Keras take
    them as they are: Adam would add up their squares, not square their sum.
    """
    if NAME == "tensorflow":
        table = _with_dense_gradient(tensorflow.convert_to_tensor(table))
    return ops.take(table, ids, axis=0)


def _with_dense_gradient(table):
    @tensorflow.custom_gradient
    def identity(x):
        return tensorflow.identity(x), tensorflow.convert_to_tensor

    return identity(table)


def multiply(x, y):
    """Return x (M, D) times y (D, U) in a wider type: of bfloat16 float32, of int8 int32.

    Elsewhere than on JAX int8 is multiplied as float32, which holds its sums exactly for D up to 1,040, and sums of
    bfloat16 are rounded once before they are widened.
    """
    if NAME == "jax":
        return xla_products.multiply(x, y)
    if keras.backend.standardize_dtype(x.dtype) == "int8":
        x, y = ops.cast(x, "float32"), ops.cast(y, "float32")
    return ops.cast(ops.matmul(x, y), "float32")


def multiply_transposed(x, y):
    """Return the transpose of x (M, D) times y (M, U): float32 (D, U)."""
    if NAME == "jax":
        return xla_products.multiply_transposed(x, y)
    return ops.cast(ops.matmul(ops.transpose(x), y), "float32")
