"""What lies in a folder of a pretrained model: its config, its tensors by name, its tokenizer as data."""

from pathlib import Path

import numpy as np

from heedful.checked import read_json
from heedful.errors import InputError
from heedful.storage import read_arrays


class PretrainedFolder:
    """A folder with `config.json`, `model.safetensors` (or several), and what tells its tokens.

    Nothing in it is ever executed: pickles are refused.

    Raises:
        InputError: a file is missing or damaged.
    """

    def __init__(self, path):
        self.path = Path(path)
        if not self.path.is_dir():
            raise InputError(f"There is no folder {path}.")
        self.config = self.read_json("config.json")
        files = sorted(self.path.glob("model*.safetensors"))
        if not files:
            pickles = [file.name for file in (*self.path.glob("*.bin"), *self.path.glob("*.pt"))]
            if pickles:
                raise InputError(
                    f"{self.path} holds its weights as {pickles[0]}, a pickle, which can run any code when it is "
                    "opened: save the model as safetensors first."
                )
            raise InputError(f"{self.path} has no model.safetensors.")
        self.tensors = Tensors(
            {name: array for file in files for name, array in read_arrays(file)[0].items()}, self.path
        )

    def read_json(self, name):
        """Return the table in a JSON file of the folder."""
        table = read_json(self.path / name)
        if not isinstance(table, dict):
            raise InputError(f"{self.path / name} is no table of settings.")
        return table

    def setting(self, name, default=None):
        """Return a value of `config.json`; `InputError` if it is missing and there is no default."""
        if name not in self.config and default is None:
            raise InputError(f"{self.path / 'config.json'} says nothing about {name!r}.")
        return self.config.get(name, default)

    def require(self, **wanted):
        """Refuse a config that asks for what our models do not do.

        Raises:
            InputError: a setting has another value than the one wanted; names both.
        """
        for name, value in wanted.items():
            if self.config.get(name, value) != value:
                raise InputError(
                    f"{self.path / 'config.json'}: {name} = {self.config[name]!r} is not supported, only {value!r}."
                )


class Tensors:
    """Arrays by name, each to be taken once.

    Args:
        arrays: by name.
        origin: for messages.
    """

    def __init__(self, arrays, origin):
        self._left, self.origin = dict(arrays), origin

    def __contains__(self, name):
        return name in self._left

    def take(self, name, *shape):
        """Return a float32 array, and cross it off.

        Raises:
            InputError: it is missing, or has another shape than that which the config leads to.
        """
        if name not in self._left:
            raise InputError(f"{self.origin} lacks the tensor {name!r}.")
        array = self._left.pop(name)
        if array.shape != shape:
            raise InputError(f"{self.origin}: the tensor {name!r} has the shape {array.shape}, expected {shape}.")
        return np.asarray(array, np.float32)

    def drop(self, *beginnings):
        """Cross off what is not needed: all names that begin so."""
        self._left = {name: array for name, array in self._left.items() if not name.startswith(beginnings)}

    def finish(self):
        """Refuse tensors that were not taken: the model would not be the one that was trained."""
        if self._left:
            raise InputError(f"{self.origin} has a tensor that has no place in such a model: {min(self._left)!r}.")
