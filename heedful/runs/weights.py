"""Trained weights by name: from a model to arrays and back.

The name of a weight is its path inside the model, such as `encoder/block_0/self_attention/query_key_value/kernel`.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from heedful.config import ModelConfig
from heedful.core.errors import InputError
from heedful.core.storage import name_in_model, shapes
from heedful.runs.adapters import adapted_layers, adapter_of, is_adapter_weight, merged, parts_of


def weights_by_name(model: Any) -> dict[str, np.ndarray]:
    """Return the weights of a model as float32 arrays by name, with adapters merged into their matrices."""
    from heedful import backend  # imported here because it loads Keras, which some commands do not need

    arrays = {
        name: np.asarray(backend.to_numpy(variable), np.float32) for name, variable in _variables_by_name(model).items()
    }
    return merged(arrays, adapter_of(model, ""), "the model") if adapted_layers(model) else arrays


def load_weights(model: Any, arrays: Mapping[str, np.ndarray], origin: object) -> None:
    """Assign arrays by name to the weights of a model; adapters then start at zero again.

    Raises:
        InputError: names or shapes differ from those of the model, or a value is not finite; the error names `origin`.
    """
    variables = _variables_by_name(model)
    for title, names in (
        ("lacks", variables.keys() - arrays.keys()),
        ("has unknown", arrays.keys() - variables.keys()),
    ):
        if names:
            raise InputError(
                f"{origin} does not fit the run's config: it {title} {len(names)} weights, {min(names)!r}."
            )
    _assign(variables, arrays, origin)
    for layer in adapted_layers(model).values():
        _, b = parts_of(layer)
        b.assign(np.zeros(b.shape, np.float32))


def load_matching(model: Any, arrays: Mapping[str, np.ndarray], origin: object, prefixes: tuple[str, ...]) -> int:
    """Assign the arrays whose names begin with one of `prefixes`; return their number.

    Raises:
        InputError: the arrays lack weights of such names, or have other shapes.
    """
    variables = {name: variable for name, variable in _variables_by_name(model).items() if name.startswith(prefixes)}
    if missing := variables.keys() - arrays.keys():
        raise InputError(f"{origin} does not fit: it lacks {len(missing)} weights, {min(missing)!r}.")
    _assign(variables, arrays, origin)
    return len(variables)


def count_elements(path: Path) -> int:
    """Return the number of array elements in a safetensors file, from its header."""
    return sum(math.prod(shape) for shape in shapes(path).values())


def refuse_larger_model(config: ModelConfig, vocabulary: int, numbers: int, origin: object) -> None:
    """Raise `InputError` before building a model that would have more parameters than the `numbers` in a file."""
    positions = config.max_length if config.positions == "learned" else 0
    attention = config.num_heads * config.head_size
    attention = attention if config.attention_projections == "all" else 0
    min_parameters = min(config.depths.values()) * 2 * config.d_model * (attention + config.d_ff)
    min_parameters += (vocabulary + positions) * config.d_model
    if min_parameters > numbers:
        raise InputError(
            f"{origin} does not fit the run's config or tokenizer: it holds {numbers:,} numbers, such a model has "
            f"more than {min_parameters:,}."
        )


def _variables_by_name(model):
    """Return the weights of a model by name, without those of adapters."""
    named = {name_in_model(variable): variable for variable in model.weights}
    return {name: variable for name, variable in named.items() if not is_adapter_weight(name)}


def _assign(variables, arrays, origin):
    for name, variable in variables.items():
        if tuple(variable.shape) != arrays[name].shape:
            raise InputError(
                f"{origin} does not fit the run's config or tokenizer: "
                f"{name} is {arrays[name].shape}, expected {tuple(variable.shape)}."
            )
        if not np.isfinite(arrays[name]).all():
            raise InputError(f"{origin} cannot be used: {name} holds values that are not numbers (NaN or infinity).")
    for name, variable in variables.items():
        variable.assign(arrays[name])
