"""Snapshots of a model during its training, in 8 bits, to look back at how it learned."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from heedful.core.storage import plain_file, read_checked, with_checksum, write_atomically

FOLDER = "snapshots"
SCALE = ".scale"  # suffix of the scales of a matrix in 8 bits


class Snapshots:
    """The folder snapshots/ of a run: the weights after some validations.

    Validations 1, 2, 5, 10, 20, 50, ... have a snapshot, and so has the untrained model: the longer the training, the
    sparser they are. Matrices are stored in 8 bits with a scale for each output, a quarter of their size.

    Args:
        folder: the run folder.
    """

    def __init__(self, folder: Path):
        self.folder = Path(folder)

    @staticmethod
    def due(validation: int) -> bool:
        """Return whether there is a snapshot after this many validations; 0 is the untrained model."""
        digits = str(validation)
        return validation == 0 or (digits[0] in "125" and not digits[1:].strip("0"))

    def save(self, update: int, weights: Mapping[str, np.ndarray]) -> None:
        """Write the weights, arrays by name, after `update` updates."""
        path = self.folder / FOLDER / f"{update:08d}.safetensors"
        path.parent.mkdir(exist_ok=True)
        arrays = {}
        for name, array in weights.items():
            arrays[name] = array
            if is_matrix(name, array):
                arrays[name], arrays[name + SCALE] = to_int8(array, output_axis(name))
        write_atomically(path, with_checksum(arrays, {"format": "1"}))

    def paths(self) -> list[Path]:
        """Return the files, oldest first."""
        return sorted((self.folder / FOLDER).glob("[0-9]" * 8 + ".safetensors"))

    def read(self, path: Path) -> dict[str, np.ndarray]:
        """Return the weights in one of `paths` as float32 arrays; raise `InputError` if it is damaged."""
        arrays, _ = read_checked(plain_file(self.folder, path.relative_to(self.folder)))
        weights = {}
        for name, array in arrays.items():
            if name.endswith(SCALE):
                continue
            scale = arrays.get(name + SCALE)
            weights[name] = array if scale is None else array * np.expand_dims(scale, 1 - output_axis(name))
        return weights

    def forget_after(self, update: int) -> None:
        """Delete the snapshots of later updates, which will be repeated."""
        for path in self.paths():
            if int(path.stem) > update:
                path.unlink()


def is_matrix(name: str, array: np.ndarray) -> bool:
    """Return whether an array is the matrix of a product; learned positions are added instead."""
    return array.ndim == 2 and "positions" not in name


def output_axis(name: str) -> int:
    """Return the axis of a matrix whose items are the outputs of its product: rows of a table, columns of a kernel."""
    return 0 if name.endswith("embeddings") else 1


def to_int8(matrix: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a matrix as int8 and the float32 scale of each item along `axis`; their product restores the matrix."""
    scale = np.maximum(np.abs(matrix).max(axis=1 - axis), 1e-30).astype(np.float32) / np.float32(127)
    return np.rint(matrix / np.expand_dims(scale, 1 - axis)).astype(np.int8), scale
