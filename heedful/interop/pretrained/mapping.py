"""Invertible mappings between our weights and the tensors of a model in the Hugging Face layout.

A layout lists its mappings once; an import reads tensors with them, and an export writes tensors. Kernels are (outputs,
inputs) in PyTorch's linear layers, and (inputs, outputs) in ours.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Arrays = Sequence[np.ndarray]


class Named(NamedTuple):
    """The name and shape of an array."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class WeightMapping:
    """One of our weights, and the tensors with the same numbers.

    Args:
        ours: our weight.
        theirs: the tensors.
        read: from the tensors to our weight.
        write: from our weight to the tensors.
    """

    ours: Named
    theirs: tuple[Named, ...]
    read: Callable[[Arrays], np.ndarray]
    write: Callable[[np.ndarray], Arrays]


def read_weights(mappings: Iterable[WeightMapping], tensors: Any) -> dict[str, np.ndarray]:
    """Take the tensors of all mappings from `Tensors`; return our weights by name.

    Raises:
        InputError: a tensor is missing, or has another shape.
    """
    return {each.ours.name: each.read([tensors.take(one.name, *one.shape) for one in each.theirs]) for each in mappings}


def write_tensors(mappings: Iterable[WeightMapping], weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the tensors of all mappings by name. A bias that our model lacks is written as zeros."""
    tensors = {}
    for each in mappings:
        ours = weights.get(each.ours.name)
        if ours is None:
            if not each.ours.name.endswith(("/bias", "/beta")):
                raise KeyError(each.ours.name)
            ours = np.zeros(each.ours.shape, np.float32)
        for theirs, array in zip(each.theirs, each.write(ours), strict=True):
            tensors[theirs.name] = np.ascontiguousarray(array, np.float32)
    return tensors


def same(ours: str, theirs: str, *shape: int) -> WeightMapping:
    """Map a weight to a tensor that is equal."""
    return WeightMapping(Named(ours, shape), (Named(theirs, shape),), lambda arrays: arrays[0], lambda array: [array])


def reshaped(ours: WeightMapping, *shape: int) -> WeightMapping:
    """Give the only tensor of a mapping another shape."""
    [theirs], own = ours.theirs, ours.ours.shape
    return WeightMapping(
        ours.ours, (Named(theirs.name, shape),), lambda arrays: arrays[0].reshape(own),
        lambda array: [array.reshape(shape)],
    )  # fmt: skip


def linear(ours: str, theirs: str, inputs: int, outputs: int, bias: bool = True) -> list[WeightMapping]:
    """Map a projection to a linear layer."""
    return joined(ours, [theirs], inputs, [outputs], bias)


def joined(
    ours: str, parts: Sequence[str], inputs: int, outputs: Sequence[int], bias: bool = True
) -> list[WeightMapping]:
    """Map a projection to several linear layers with the same input, whose outputs it concatenates."""
    total, cuts = sum(outputs), np.cumsum(outputs)[:-1]
    kernels = tuple(Named(f"{part}.weight", (size, inputs)) for part, size in zip(parts, outputs, strict=True))
    mappings = [
        WeightMapping(
            Named(f"{ours}/kernel", (inputs, total)), kernels,
            lambda arrays: np.concatenate([array.T for array in arrays], axis=1),
            lambda array: [part.T for part in np.split(array, cuts, axis=1)],
        )
    ]  # fmt: skip
    if bias:
        biases = tuple(Named(f"{part}.bias", (size,)) for part, size in zip(parts, outputs, strict=True))
        mappings.append(
            WeightMapping(Named(f"{ours}/bias", (total,)), biases, np.concatenate, lambda array: np.split(array, cuts))
        )
    return mappings


def norm(
    ours: str, theirs: str, width: int, rms: bool = False, names: tuple[str, str] = ("weight", "bias")
) -> list[WeightMapping]:
    """Map a norm: a layer norm or, with `rms`, one that has only a scale."""
    if rms:
        return [same(f"{ours}/scale", f"{theirs}.{names[0]}", width)]
    return [same(f"{ours}/gamma", f"{theirs}.{names[0]}", width), same(f"{ours}/beta", f"{theirs}.{names[1]}", width)]


def positions(
    ours: str, theirs: str, length: int, width: int, skipped: int = 0, segments: Named | None = None
) -> WeightMapping:
    """Map learned positions.

    Args:
        length: positions of ours.
        skipped: rows of the tensor before position 0.
        segments: a table whose first row is added to every position, since all tokens are in segment 0.
    """
    table = Named(theirs, (length + skipped, width))

    def read(arrays):
        return arrays[0][skipped:] + (arrays[1][0] if segments else 0)

    def write(array):
        whole = np.concatenate([np.zeros((skipped, width), np.float32), array])
        return [whole, np.zeros(segments.shape, np.float32)] if segments else [whole]

    return WeightMapping(Named(ours, (length, width)), (table, segments) if segments else (table,), read, write)
