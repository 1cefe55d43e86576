"""Export to Bergamot, the translator of Firefox: Marian's model in one binary file, which is read without unpacking.

The file begins with its version and the number of its arrays; for each array follow the lengths of its name, shape and
data and its type, then all names, all shapes, and all data, aligned to 256 bytes (Marian, src/common/binary.cpp).
"""

import io
import math
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from heedful.core.errors import InputError
from heedful.interop.engines import MARIAN
from heedful.interop.export.folders import ORIGIN, PARITY, write_origin
from heedful.interop.export.formats import Format
from heedful.interop.export.marian import (
    OPTIONS,
    Arrays,
    MarianExport,
    decoder_options,
    marian_arrays,
    options_bytes,
    vocabularies,
    write_vocabularies,
    yaml,
)
from heedful.interop.export.marian_model import END_ID as END_PIECE
from heedful.interop.export.sentencepiece_vocabulary import sentencepiece_library

if TYPE_CHECKING:
    from heedful.interop.export.shortlist import Shortlist
    from heedful.runs.run import Run

MODEL, CONFIG, SHORTLIST = "model.bin", "config.yml", "lex.bin"
VERSION, ALIGNED = 1, 256
INT8, FLOAT32, ROUNDED = 0x101, 0x404, 0x4101  # Marian's numbers of types: the last one is its `intgemm8`
HEADER = struct.Struct("<4Q")  # name length, type, dimensions, bytes of data
MAX_INT8 = 127.0
PRODUCTS = {"float32": "float32", "int8": "int8shiftAll"}  # Marian's names, by quantization
SHORTLIST_MAGIC = 0xF11A48D5013417F5
# Of a shortlist: the number of first pieces that are always considered, a limit that nothing reads, numbers of entries.
SHORTLIST_HEADER = struct.Struct("<4Q")
DECODING = {
    "cpu-threads": 0, "quiet": True, "quiet-translation": True, "skip-cost": True, "max-length-break": 128,
    "mini-batch-words": 1024, "workspace": 128, "alignment": "soft",
}  # fmt: skip


class Item(NamedTuple):
    """A parameter in a file: its name, type and shape, and its data."""

    name: str
    kind: int
    shape: tuple[int, ...]
    content: bytes


def item(name: str, array: np.ndarray, quantization: str = "float32") -> Item:
    """Return a parameter as it is stored; with `int8`, matrices are rounded to 8 bits.

    A rounded matrix is followed by the number of steps in 1 (float32). All but embeddings are transposed, although
    their shape is not: each output's weights follow one another.
    """
    if array.dtype == np.int8:
        return Item(name, INT8, (1, *array.shape), array.tobytes())
    if quantization == "float32" or "_W" not in f"_{name}" or min(array.shape) == 1:
        return Item(name, FLOAT32, array.shape, np.ascontiguousarray(array, np.float32).tobytes())
    steps = np.float32(MAX_INT8 / max(float(np.abs(array).max()), 1e-9))
    rounded = np.rint(array * steps).clip(-MAX_INT8, MAX_INT8).astype(np.int8)
    ordered = rounded if name.endswith("Wemb") else rounded.T
    return Item(name, ROUNDED, array.shape, np.ascontiguousarray(ordered).tobytes() + steps.tobytes())


def array_of(stored: Item) -> np.ndarray:
    """Return the array that `item` stored, rounded if it was."""
    size = math.prod(stored.shape)
    if stored.kind == FLOAT32:
        return np.frombuffer(stored.content, np.float32, size).reshape(stored.shape)
    values = np.frombuffer(stored.content, np.int8, size)
    if stored.kind == INT8:
        return values
    [steps] = np.frombuffer(stored.content, np.float32, 1, size)
    rows, columns = stored.shape
    values = values.reshape(stored.shape) if stored.name.endswith("Wemb") else values.reshape(columns, rows).T
    return values / steps


def binary(items: Sequence[Item]) -> bytes:
    """Return parameters as a binary file of Marian."""
    data = [one.content + bytes(-len(one.content) % ALIGNED) for one in items]
    head = struct.pack("<2Q", VERSION, len(items))
    for one, content in zip(items, data, strict=True):
        head += HEADER.pack(len(one.name) + 1, one.kind, len(one.shape), len(content))
    head += b"".join(one.name.encode() + b"\0" for one in items)
    head += b"".join(struct.pack(f"<{len(one.shape)}i", *one.shape) for one in items)
    padding = -(len(head) + 8) % ALIGNED
    return head + struct.pack("<Q", padding) + bytes(padding) + b"".join(data)


def read_binary(folder: Path) -> Arrays:
    """Return the arrays of a `model.bin`; raise `InputError` if it is of another version."""
    file = io.BytesIO((folder / MODEL).read_bytes())

    def unpack(layout: str) -> tuple[int, ...]:
        return struct.unpack(f"<{layout}", file.read(struct.calcsize(f"<{layout}")))

    version, count = unpack("2Q")
    if version != VERSION:
        raise InputError(f"{folder / MODEL} is no binary model of Marian of version {VERSION}.")
    headers = [unpack("4Q") for _ in range(count)]
    names = [file.read(length)[:-1].decode() for length, *_ in headers]
    shapes = [unpack(f"{dimensions}i") for _, _, dimensions, _ in headers]
    file.read(*unpack("Q"))
    items = [
        Item(name, kind, shape, file.read(length))
        for name, shape, (_, kind, _, length) in zip(names, shapes, headers, strict=True)
    ]
    return {one.name: array_of(one) for one in items}


def write(run: "Run", folder: Path, quantization: str) -> None:
    """Write a `Run` as a model of Bergamot into a folder."""
    sides = vocabularies(run)
    arrays = marian_arrays(run, sides)
    items = [item(name, array, quantization) for name, array in arrays.items()]
    (folder / MODEL).write_bytes(binary([*items, item(OPTIONS, options_bytes(run.config.model, sides))]))
    names = write_vocabularies(sides, folder)
    options = {"relative-paths": True, "models": [MODEL], "vocabs": names} | decoder_options(run) | DECODING
    options["gemm-precision"] = PRODUCTS[quantization]
    (folder / CONFIG).write_text(yaml(options), encoding="utf-8")
    write_origin(folder, run)


def shortlist_bytes(lists: Sequence[Sequence[int]]) -> bytes:
    """Return a shortlist as a binary file of Marian: target pieces for each source piece (src/data/shortlist.h).

    Every source ends with the end piece, so that the list of this piece is considered for every text.
    """
    ends = np.cumsum([0, *map(len, lists)], dtype=np.uint64)
    pieces = np.fromiter((piece for one in lists for piece in one), np.uint32)
    content = SHORTLIST_HEADER.pack(0, 0, len(ends), len(pieces)) + ends.tobytes() + pieces.tobytes()
    return struct.pack("<2Q", SHORTLIST_MAGIC, _checksum(content)) + content


def _checksum(content: bytes) -> int:
    """Return Marian's checksum of the whole 8-byte words of a content (src/common/hash.h)."""
    seed, limit = 0, (1 << 64) - 1
    for [word] in struct.iter_unpack("<Q", content[: len(content) // 8 * 8]):
        seed ^= (word + 0x9E3779B9 + (seed << 6) + (seed >> 2)) & limit
    return seed


def read_shortlist(folder: Path) -> list[np.ndarray] | None:
    """Return the target pieces for each source piece, or None if an export has no shortlist."""
    if not (folder / SHORTLIST).is_file():
        return None
    content = (folder / SHORTLIST).read_bytes()[16:]
    *_, ends_count, _ = SHORTLIST_HEADER.unpack_from(content)
    ends = np.frombuffer(content, np.uint64, ends_count, SHORTLIST_HEADER.size)
    pieces = np.frombuffer(content, np.uint32, offset=SHORTLIST_HEADER.size + ends.nbytes)
    return np.split(pieces, ends[1:-1].astype(int))


def add_shortlist(run: "Run", folder: Path, shortlist: "Shortlist") -> None:
    """Write a shortlist into an export, and name it in its settings."""
    source, target = vocabularies(run)
    piece_of = {token: piece for piece, token in enumerate(target.ids) if target.written[piece]}
    lists = [sorted(piece_of[one] for one in shortlist.translations[token] if one in piece_of) for token in source.ids]
    lists[-1] = lists[-1] or [END_PIECE]  # Marian refuses a file whose last list is empty
    lists[END_PIECE] = sorted(piece_of[one] for one in shortlist.always if one in piece_of)
    (folder / SHORTLIST).write_bytes(shortlist_bytes(lists))
    with (folder / CONFIG).open("a", encoding="utf-8") as file:
        file.write(yaml({"shortlist": [SHORTLIST]}))


def open_export(run: "Run", folder: Path, quantization: str) -> MarianExport:
    """Open an export for a comparison."""
    size = sum(path.stat().st_size for path in map(folder.joinpath, (MODEL, SHORTLIST)) if path.exists())
    return MarianExport(run, folder, read_binary, size, read_shortlist(folder))


FORMAT = Format(
    library="Bergamot",
    require=sentencepiece_library,
    files=(MODEL, CONFIG, SHORTLIST, "*.spm", ORIGIN, PARITY),
    quantizations=tuple(PRODUCTS),
    write=write,
    open=open_export,
    task="translate",
    computes=MARIAN,
    add_shortlist=add_shortlist,
)
