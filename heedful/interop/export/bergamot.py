"""Export to Bergamot, the translator of Firefox: Marian's model in one binary file, which is read without unpacking.

The file begins with its version and the number of its arrays; for each array follow the lengths of its name, shape and
data and its type, then all names, all shapes, and all data, aligned to 256 bytes (Marian, src/common/binary.cpp).
"""

import math
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from heedful.core.errors import InputError
from heedful.interop.export.folders import ORIGIN, PARITY, write_origin
from heedful.interop.export.formats import Format
from heedful.interop.export.marian import (
    OPTIONS,
    Arrays,
    MarianEngine,
    decoder_options,
    marian_arrays,
    options_bytes,
    vocabularies,
    write_vocabularies,
    yaml,
)
from heedful.interop.export.sentencepiece_vocabulary import sentencepiece_library

if TYPE_CHECKING:
    from heedful.runs.run import Run

MODEL, CONFIG = "model.bin", "config.yml"
VERSION, ALIGNED = 1, 256
TYPES = {"int8": 0x101, "float32": 0x404}  # Marian's numbers of types
HEADER = struct.Struct("<4Q")  # name length, type, dimensions, bytes of data
DECODING = {
    "cpu-threads": 0, "quiet": True, "quiet-translation": True, "skip-cost": True, "max-length-break": 128,
    "mini-batch-words": 1024, "workspace": 128, "alignment": "soft", "gemm-precision": "float32",
}  # fmt: skip


def binary(arrays: Arrays) -> bytes:
    """Return arrays as a binary file of Marian."""
    data = [_aligned(array.tobytes()) for array in arrays.values()]
    shapes = [array.shape if array.ndim > 1 else (1, *array.shape) for array in arrays.values()]
    head = struct.pack("<2Q", VERSION, len(arrays))
    for (name, array), shape, content in zip(arrays.items(), shapes, data, strict=True):
        head += HEADER.pack(len(name) + 1, TYPES[array.dtype.name], len(shape), len(content))
    head += b"".join(name.encode() + b"\0" for name in arrays)
    head += b"".join(struct.pack(f"<{len(shape)}i", *shape) for shape in shapes)
    padding = -(len(head) + 8) % ALIGNED
    return head + struct.pack("<Q", padding) + bytes(padding) + b"".join(data)


def read_binary(folder: Path) -> Arrays:
    """Return the arrays of a `model.bin`; raise `InputError` if it is of another version."""
    content = (folder / MODEL).read_bytes()
    version, count = struct.unpack_from("<2Q", content)
    if version != VERSION:
        raise InputError(f"{folder / MODEL} is no binary model of Marian of version {VERSION}.")
    place = 16
    headers = [HEADER.unpack_from(content, place + number * HEADER.size) for number in range(count)]
    place += count * HEADER.size
    names, shapes = [], []
    for length, *_ in headers:
        names.append(content[place : place + length - 1].decode())
        place += length
    for _, _, dimensions, _ in headers:
        shapes.append(struct.unpack_from(f"<{dimensions}i", content, place))
        place += 4 * dimensions
    [padding] = struct.unpack_from("<Q", content, place)
    place += 8 + padding
    names_of_types = {number: name for name, number in TYPES.items()}
    arrays = {}
    for name, shape, (_, kind, _, length) in zip(names, shapes, headers, strict=True):
        arrays[name] = np.frombuffer(content, names_of_types[kind], math.prod(shape), place).reshape(shape)
        place += length
    return arrays


def write(run: "Run", folder: Path, quantization: str) -> None:
    """Write a `Run` as a model of Bergamot into a folder."""
    sides = vocabularies(run)
    arrays = marian_arrays(run, sides)
    (folder / MODEL).write_bytes(binary(arrays | {OPTIONS: options_bytes(run.config.model, sides)}))
    names = write_vocabularies(sides, folder)
    options = {"relative-paths": True, "models": [MODEL], "vocabs": names} | decoder_options(run) | DECODING
    (folder / CONFIG).write_text(yaml(options), encoding="utf-8")
    write_origin(folder, run)


def _aligned(content):
    return content + bytes(-len(content) % ALIGNED)


FORMAT = Format(
    library="Bergamot",
    require=sentencepiece_library,
    files=(MODEL, CONFIG, "*.spm", ORIGIN, PARITY),
    quantizations=("float32",),
    write=write,
    open=lambda run, folder, quantization: MarianEngine(run, folder, read_binary, (folder / MODEL).stat().st_size),
    task="translate",
)
