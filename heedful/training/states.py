"""The exact state of a training: what it consists of, into the run folder and back."""

import shutil

import numpy as np

from heedful import backend
from heedful.errors import InputError
from heedful.storage import name_in_model


class States:
    """Everything that training changes - weights, dropout seeds, optimizer - and the files that keep it.

    Args:
        run: a `Run`; its config says how many states are kept.
        model: that learns.
        optimizer: its, built.
    """

    def __init__(self, run, model, optimizer):
        self.run, self.config = run, run.config.train
        # By place and path. The first part of a path is left out: Keras numbers optimizers and seed generators through
        # the whole process.
        kinds = {"model": model.variables, "optimizer": optimizer.variables}
        self.variables = {
            f"{kind}/{index:04d}/{variable.path.split('/', 1)[-1]}": variable
            for kind, variables in kinds.items()
            for index, variable in enumerate(variables)
        }
        weights = {id(weight) for weight in model.weights}
        self._weights = {name: variable for name, variable in self.variables.items() if id(variable) in weights}

    def arrays(self):
        """Return the present state as arrays by name."""
        return {name: backend.to_numpy(variable) for name, variable in self.variables.items()}

    def put(self, arrays):
        """Take over a state; `InputError` if it is of another model or optimizer."""
        fits = arrays.keys() == self.variables.keys() and all(
            arrays[name].shape == tuple(variable.shape) for name, variable in self.variables.items()
        )
        if not fits:
            raise InputError(f"The training state of {self.run.path} does not fit its config.")
        for name, variable in self.variables.items():
            variable.assign(arrays[name])

    def save(self, progress, arrays=None):
        """Write a state, the present one if no other is given, with the progress; old ones are forgotten."""
        keep, every = self.config.keep, self.config.validate_every
        arrays = self.arrays() if arrays is None else arrays
        self.write(lambda: self.run.save_state(arrays, progress, keep, every))

    def write(self, action):
        """Do what writes to the run folder; `InputError` says what is kept where the disk is full."""
        try:
            action()
        except OSError as error:
            states = self.run.states()
            kept = f"the last state, {states[-1]}, is whole" if states else "no state was saved yet"
            raise InputError(
                f"Cannot save to {self.run.path}: {error.strerror}; {kept}. A state takes {self._bytes():,} "
                f"bytes, and {self.config.keep} are kept. Make room and go on with: heedful train --resume "
                f"{self.run.path}"
            ) from error

    def warn_of_little_room(self, report):
        """Say so if the disk cannot hold the states that are to be kept, one that is being written, and the weights."""
        needed = (self.config.keep - len(self.run.states()) + 2) * self._bytes()
        free = shutil.disk_usage(self.run.path).free
        if free < needed:
            report(f"Little room: the states of this training will take {needed:,} bytes, {free:,} are free.")

    def average(self, paths):
        """Return the mean of the weights in some of the run's states, by the names under which weights are saved."""
        names = {name: name_in_model(variable) for name, variable in self._weights.items()}
        total = {}
        for path in paths:
            arrays, _ = self.run.read_state(path)
            for name, short in names.items():
                total[short] = total.get(short, 0) + arrays[name].astype(np.float64)
        return {name: (value / len(paths)).astype(np.float32) for name, value in total.items()}

    def _bytes(self):
        return sum(array.nbytes for array in self.arrays().values())
