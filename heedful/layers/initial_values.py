"""Weights with initial values, and without them where they will be loaded."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from heedful.backend import Shape

_COMPUTED = contextvars.ContextVar("computed", default=True)


@contextlib.contextmanager
def without_initial_values() -> Iterator[None]:
    """Build layers in this context whose weights are zero: computing initial values takes longer than all the rest."""
    before = _COMPUTED.set(False)
    try:
        yield
    finally:
        _COMPUTED.reset(before)


class LoadableLayer(keras.layers.Layer):
    """A layer whose weights get no initial values if it is built in `without_initial_values`, to be loaded."""

    def add_weight(self, shape: Shape | None = None, initializer: Any = None, *arguments: Any, **options: Any) -> Any:
        is_adapter = options.get("name", "").startswith("lora")  # it is not loaded
        if not (_COMPUTED.get() or is_adapter) and isinstance(initializer, keras.initializers.Initializer):
            initializer = _zeros
        return super().add_weight(shape, initializer, *arguments, **options)


def _zeros(shape: Shape, dtype: str) -> np.ndarray:
    return np.zeros(shape, np.float32)  # by NumPy, since JAX would compile a program for each shape
