"""Where arrays live: which devices compute, how batches get there, and how results come back."""

import keras
import numpy as np
from keras import ops

from heedful.backend.devices import NAME, device, device_count


def used_device_count() -> int:
    """Return how many devices are used. Batches and weights live on the first one."""
    return 1


def device_summary() -> str:
    """Return a line that tells the user how many devices the backend sees and how many are used."""
    return f"devices: {used_device_count()} of {device_count()} used ({device()}), backend {NAME}"


def feed(batches, example):
    """Return the iterator `batches` in a form that `fit` accepts; its items are dicts of arrays like `example`.

    TensorFlow infers shapes from the first two batches and refuses a third that differs, so every axis is declared as
    unknown there.
    """
    if NAME != "tensorflow":
        return ((batch,) for batch in batches)
    import tensorflow

    signature = {name: tensorflow.TensorSpec([None] * array.ndim, array.dtype) for name, array in example.items()}
    return tensorflow.data.Dataset.from_generator(lambda: batches, output_signature=signature)


def to_numpy(array) -> np.ndarray:
    """Return an array or variable of the backend as a NumPy array."""
    return ops.convert_to_numpy(array.value if isinstance(array, keras.Variable) else array)


def has_values(array) -> bool:
    """Return whether an array holds numbers; False inside a compiled or symbolic computation."""
    if NAME == "jax":
        import jax

        return isinstance(array, jax.Array) and not isinstance(array, jax.core.Tracer)
    if NAME == "tensorflow":
        return hasattr(array, "numpy")
    return not array.is_meta
