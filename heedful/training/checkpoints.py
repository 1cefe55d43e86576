"""The exact training state, and how it is saved to the run folder and restored."""

import contextlib
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from heedful import backend
from heedful.core.errors import InputError
from heedful.core.storage import name_in_model
from heedful.runs.run import Run


class Checkpoints:
    """Everything that training changes (weights, dropout seeds, optimizer), and its checkpoint files.

    Args:
        run: a `Run`; its config says how many checkpoints are kept.
        model: the model in training.
        optimizer_variables: those of its optimizer, which is built.
    """

    def __init__(self, run: Run, model: keras.Model, optimizer_variables: Sequence[keras.Variable]):
        self.run, self.files, self.config = run, run.checkpoints, run.config.train
        # Names consist of index and path, without the first component of the path: Keras numbers optimizers and seed
        # generators across the whole process.
        kinds = {"model": model.variables, "optimizer": optimizer_variables}
        self.variables = {
            f"{kind}/{index:04d}/{variable.path.split('/', 1)[-1]}": variable
            for kind, variables in kinds.items()
            for index, variable in enumerate(variables)
        }
        weights = {id(weight) for weight in model.weights}
        self._weights = {name: variable for name, variable in self.variables.items() if id(variable) in weights}

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the current state as arrays by name."""
        return {name: backend.to_numpy(variable) for name, variable in self.variables.items()}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Assign a state to the variables; `InputError` if it belongs to another model or optimizer."""
        fits = arrays.keys() == self.variables.keys() and all(
            arrays[name].shape == tuple(variable.shape) for name, variable in self.variables.items()
        )
        if not fits:
            raise InputError(f"The training state of {self.run.path} does not fit its config.")
        for name, variable in self.variables.items():
            variable.assign(arrays[name])

    def save(self, progress: dict[str, Any], arrays: Mapping[str, np.ndarray] | None = None) -> None:
        """Write a state (None: the current one) with the progress, and delete old ones."""
        keep, every = self.config.keep, self.config.validate_every
        arrays = self.arrays() if arrays is None else arrays
        with self.writing():
            self.files.save(arrays, progress, keep, every)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Write to the run folder in this context; if it fails, an `InputError` says what is kept."""
        try:
            yield
        except OSError as error:
            paths = self.files.paths()
            kept = f"the last state, {paths[-1]}, is whole" if paths else "no state was saved yet"
            raise InputError(
                f"Cannot save to {self.run.path}: {error.strerror}; {kept}. A state takes {self._bytes():,} "
                f"bytes, and {self.config.keep} are kept. Make room, then continue with: "
                f"{backend.resume_command(self.run.path)}"
            ) from error

    def warn_if_disk_is_low(self, report: Callable[[str], Any]) -> None:
        """Report if the disk cannot hold the checkpoints to keep, one that is being written, and the weights."""
        needed = (self.config.keep - len(self.files.paths()) + 2) * self._bytes()
        free = shutil.disk_usage(self.run.path).free
        if free < needed:
            report(f"Low disk space: the states of this training will take {needed:,} bytes, {free:,} are free.")

    def average(self, paths: Sequence[Path]) -> dict[str, np.ndarray]:
        """Return the mean of the weights in some checkpoints, by the names used in weight files."""
        names = {name: name_in_model(variable) for name, variable in self._weights.items()}
        total: dict[str, Any] = {}
        for path in paths:
            arrays, _ = self.files.read(path)
            for name, short in names.items():
                total[short] = total.get(short, 0) + arrays[name].astype(np.float64)
        return {name: (value / len(paths)).astype(np.float32) for name, value in total.items()}

    def _bytes(self):
        sizes = (math.prod(one.shape) * np.dtype(one.dtype).itemsize for one in self.variables.values())
        return sum(sizes)
