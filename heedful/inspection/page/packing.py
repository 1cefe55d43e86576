"""The weights of a model as one block of bytes, which the page's engine unpacks (`web/engine/unpack.js`)."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from heedful.runs.snapshots import is_matrix, output_axis, to_int8

WeightType = Literal["float32", "float16", "int8"]
TYPES: tuple[WeightType, ...] = ("float16", "float32", "int8")
ALIGNMENT = 4  # bytes: arrays of four-byte numbers begin at multiples of it


def pack(weights: Mapping[str, np.ndarray], kind: WeightType) -> tuple[bytes, list[dict[str, Any]]]:
    """Return all weights as one block of little-endian bytes, and a table of where each lies.

    Matrices have the type `kind`; vectors and learned positions are always float32. Each entry of the table has name,
    shape, type, and `at`, the offset in the block. An int8 matrix also has `axis`, that of its outputs, and `scales`,
    the offset of their float32 scales.
    """
    content, table = bytearray(), []

    def put(array):
        content.extend(bytes(-len(content) % ALIGNMENT))
        offset = len(content)
        content.extend(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes())
        return offset

    for name in sorted(weights):
        array = np.asarray(weights[name], np.float32)
        entry: dict[str, Any] = {"name": name, "shape": list(array.shape), "type": "float32"}
        if not is_matrix(name, array) or kind == "float32":
            entry["at"] = put(array)
        elif kind == "float16":
            entry |= {"type": kind, "at": put(to_half(array))}
        else:
            axis = output_axis(name)
            values, scales = to_int8(array, axis)
            entry |= {"type": kind, "axis": axis, "at": put(values), "scales": put(scales)}
        table.append(entry)
    return bytes(content), table


def rounded(weights: Mapping[str, np.ndarray], kind: WeightType) -> dict[str, np.ndarray]:
    """Return the weights as the page computes with them: float32 arrays after rounding to `kind`."""

    def of(name, array):
        if not is_matrix(name, array) or kind == "float32":
            return array
        if kind == "float16":
            return to_half(array).astype(np.float32)
        axis = output_axis(name)
        values, scales = to_int8(array, axis)
        return values * np.expand_dims(scales, 1 - axis)

    return {name: of(name, np.asarray(array, np.float32)) for name, array in weights.items()}


def to_half(array: np.ndarray) -> np.ndarray:
    """Return a float32 array as float16; numbers beyond its range become its largest."""
    largest = np.finfo(np.float16).max
    return np.clip(array, -largest, largest).astype(np.float16)
