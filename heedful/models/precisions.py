"""Copies of a trained model with matrix products in another precision."""

import threading
from typing import Any

import keras

from heedful import backend
from heedful.core.storage import name_in_model
from heedful.layers.rounding import RoundingPolicy, rounded_values
from heedful.models.ensemble import Ensemble


def in_precision(model: Any, precision: str) -> Any:
    """Return a copy of a model whose matrix products are in `precision`; it cannot be trained.

    Everything else is float32 in the copy. A model that already has this precision is returned as is.

    Args:
        model: a model or an `Ensemble`.
        precision: `as_trained`, `float32`, `bfloat16` or `int8` (see `RoundingPolicy`).
    """
    if isinstance(model, Ensemble):
        copies = [in_precision(each, precision) for each in model.models]
        same = all(copy is each for copy, each in zip(copies, model.models, strict=True))
        return model if same else Ensemble(copies)
    if precision == "as_trained":
        precision = "bfloat16" if model.compute_dtype == "bfloat16" else "float32"
    if precision == model.compute_dtype == "float32":
        return model
    policy = precision if precision == "float32" else RoundingPolicy(precision)
    # Not from `get_config`, which imports TensorFlow if it is installed: that takes seconds.
    copy = type(model)(**model.arguments, name=model.name, dtype=policy, trainable=False)
    _update(copy, model)
    return copy


class Precisions:
    """A model and its copies in other precisions, each created when it is first used: `precisions["int8"]`.

    Threads may share it.

    Args:
        model: see `in_precision`. After further training call `refresh` to update the copies.
    """

    def __init__(self, model: Any):
        self._model, self._lock = model, threading.Lock()
        self._copies: dict[str, Any] = {}

    def __getitem__(self, precision: str) -> Any:
        with self._lock:
            if precision not in self._copies:
                self._copies[precision] = in_precision(self._model, precision)
            return self._copies[precision]

    def refresh(self) -> None:
        """Copy the current weights of the model to its copies."""
        with self._lock:
            for copy in self._copies.values():
                _update(copy, self._model)


def _update(copy: Any, model: Any) -> None:
    """Copy the weights of a model to its copy, which may be the model itself."""
    if isinstance(model, Ensemble):
        for one, other in zip(copy.models, model.models, strict=True):
            _update(one, other)
    elif copy is not model:
        _copy_weights(copy, model)


def _copy_weights(copy: keras.Model, model: keras.Model) -> None:
    """Copy the weights of a single model, rounded where the copy stores them rounded."""
    weights = {name_in_model(variable): variable for variable in model.variables}
    for variable in copy.variables:
        own_name = name_in_model(variable)
        if own_name in weights:
            variable.assign(backend.to_numpy(weights[own_name]))
            continue
        name, _, kind = own_name.rpartition("_")
        kernel = backend.to_numpy(weights[name]).astype("float32")
        if name.endswith("embeddings"):  # one row per token in the model, one column in the copy
            kernel = kernel.T
        variable.assign(rounded_values(kernel, copy.dtype_policy.precision)[kind])
