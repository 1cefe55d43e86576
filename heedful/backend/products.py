"""Matrix products in the fastest form for each backend, and embedding lookup.

Axes: M rows, D input width, U units.
"""

import keras
from keras import ops

from heedful.backend.devices import NAME, jax_on_cpu, parallel_programs
from heedful.backend.tensors import Tensor

if NAME == "jax":
    from heedful.backend import xla_products
elif NAME == "tensorflow":
    import tensorflow

LARGE_KERNEL = 1 << 18  # weights; from this size on, the product with a single row is split over the cores


def affine(x: Tensor, kernel: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x (M, D) times kernel (D, U), plus bias (U,) if given; all of one dtype.

    JAX on a CPU multiplies bfloat16 as described in `xla_products`. With other types, XLA multiplies a single row on
    one core, limited by how fast that core reads the kernel, so a large kernel is split along D over the cores.
    """
    if jax_on_cpu() and x.dtype == "bfloat16":
        return xla_products.affine(x, *(None if y is None else ops.convert_to_tensor(y) for y in (kernel, bias)))
    depth, parts = kernel.shape[0], parallel_programs()
    if x.shape[0] != 1 or parts == 1 or depth % parts or depth * kernel.shape[1] < LARGE_KERNEL:
        product = ops.matmul(x, kernel)
    else:
        product = xla_products.split_product(x, ops.convert_to_tensor(kernel), parts)
    return product if bias is None else product + bias


def look_up(table: Tensor, ids: Tensor) -> Tensor:
    """Return the rows `ids` (B, T) of a table (V, D): (B, T, D). The gradient of the table is one array.

    TensorFlow would return it as `IndexedSlices`, in which a repeated id has several rows. Keras optimizers do not sum
    these first: Adam would add up their squares instead of squaring their sum.
    """
    if NAME == "tensorflow":
        table = _with_dense_gradient(tensorflow.convert_to_tensor(table))
    return ops.take(table, ids, axis=0)


def _with_dense_gradient(table):
    @tensorflow.custom_gradient
    def identity(x):
        return tensorflow.identity(x), tensorflow.convert_to_tensor

    return identity(table)


def multiply(x: Tensor, y: Tensor) -> Tensor:
    """Return x (M, D) times y (D, U) in a wider dtype: with JAX float32 for bfloat16, and int32 for int8.

    Other backends return float32: int8 is multiplied as float32, which is exact for D up to 1,040, and bfloat16 results
    are rounded before they are widened.
    """
    if NAME == "jax":
        return xla_products.multiply(x, y)
    if keras.backend.standardize_dtype(x.dtype) == "int8":
        x, y = ops.cast(x, "float32"), ops.cast(y, "float32")
    return ops.cast(ops.matmul(x, y), "float32")


def multiply_transposed(x: Tensor, y: Tensor) -> Tensor:
    """Return x (M, D) transposed, times y (M, U): float32 (D, U)."""
    if NAME == "jax":
        return xla_products.multiply_transposed(x, y)
    return ops.cast(ops.matmul(ops.transpose(x), y), "float32")
