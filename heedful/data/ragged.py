"""Many id sequences of different lengths in one flat array, in memory or on disk."""

import functools
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

PIECE = 1_000_000  # sequences whose lengths are computed at a time


class Ragged:
    """Many id sequences of different lengths in one flat array.

    Args:
        flat: all ids, one sequence after the other.
        offsets: the start of each sequence, then the end of the last one.
    """

    def __init__(self, flat: np.ndarray, offsets: np.ndarray):
        self.flat, self.offsets = flat, offsets

    @classmethod
    def of(cls, sequences: Iterable[Sequence[int] | np.ndarray]) -> "Ragged":
        """Concatenate id sequences."""
        sequences = list(sequences)
        offsets = np.concatenate([[0], np.cumsum([len(ids) for ids in sequences], dtype=np.int64)])
        return cls(np.fromiter(itertools.chain.from_iterable(sequences), np.int32, count=offsets[-1]), offsets)

    @classmethod
    def read(cls, folder: Path, name: str, mapped: bool) -> "Ragged":
        """Read what a `RaggedWriter` wrote; `mapped` memory-maps it."""
        arrays = []
        for path, kind in zip(_paths(folder, name), (np.int32, np.int64), strict=True):
            size = path.stat().st_size  # an empty file cannot be mapped
            arrays.append(np.memmap(path, kind, "r") if mapped and size else np.fromfile(path, kind))
        flat, offsets = arrays
        ragged = cls(flat, offsets)
        if not len(offsets) or offsets[0] or len(flat) != offsets[-1] or (len(ragged) and ragged.lengths.min() < 0):
            raise ValueError(f"the offsets of {name} do not fit its {len(flat):,} ids")
        return ragged

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """Number of ids of each sequence (N,), int32."""
        lengths = np.empty(len(self), np.int32)
        for start in range(0, len(self), PIECE):
            lengths[start : start + PIECE] = np.diff(self.offsets[start : start + PIECE + 1])
        return lengths

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        return np.asarray(self.flat[self.offsets[index] : self.offsets[index + 1]])

    def padded(self, rows: Sequence[int] | np.ndarray, length: int) -> np.ndarray:
        """Return the sequences `rows` as an array (len(rows), length), padded with 0; row -1 is empty."""
        rows = np.asarray(rows)
        starts = np.where(rows < 0, 0, self.offsets[rows])
        lengths = np.where(rows < 0, 0, self.offsets[rows + 1] - starts)
        columns = np.arange(length)
        real = columns < lengths[:, None]
        out = np.zeros((len(rows), length), np.int32)
        out[real] = self.flat[(starts[:, None] + columns)[real]]
        return out


class RaggedWriter:
    """A context that writes id sequences to NAME.bin in a folder, and their offsets to NAME_offsets.bin."""

    def __init__(self, folder: Path, name: str):
        self._paths, self._end = _paths(folder, name), 0

    def __enter__(self) -> "RaggedWriter":
        self._flat, self._offsets = (path.open("wb") for path in self._paths)
        self._offsets.write(np.zeros(1, np.int64).tobytes())
        return self

    def __exit__(self, *_: object) -> None:
        self._flat.close()
        self._offsets.close()

    def add(self, sequences: Iterable[Sequence[int] | np.ndarray]) -> None:
        """Append id sequences."""
        more = Ragged.of(sequences)
        self._flat.write(more.flat.tobytes())
        self._offsets.write((more.offsets[1:] + self._end).tobytes())
        self._end += int(more.offsets[-1])


def join(folder: Path, name: str, parts: Sequence[str]) -> None:
    """Join what several `RaggedWriter`s have written in a folder, one after the other; delete the parts."""
    with RaggedWriter(folder, name) as writer:
        for part in parts:
            ragged = Ragged.read(folder, part, mapped=False)
            for start in range(0, len(ragged), PIECE):
                writer.add(ragged[index] for index in range(start, min(start + PIECE, len(ragged))))
            for path in _paths(folder, part):
                path.unlink()


def _paths(folder, name):
    return folder / f"{name}.bin", folder / f"{name}_offsets.bin"
