"""Read the folder of a pretrained model: config, tensors and JSON files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from heedful.core.errors import InputError
from heedful.core.storage import read_arrays
from heedful.core.validation import read_json

INDEX = "model.safetensors.index.json"  # names the shard of each tensor


class PretrainedFolder:
    """A folder with `config.json`, one or more `model*.safetensors`, and tokenizer files.

    No code in it is ever executed: pickles are refused.

    Args:
        path: the folder.
        source_language, target_language: the tokens that sources and targets of a multilingual model begin with; None:
            as the files say.

    Raises:
        InputError: a file is missing or damaged.
    """

    def __init__(self, path: str | Path, source_language: str | None = None, target_language: str | None = None):
        self.path = Path(path)
        self.source_language, self.target_language = source_language, target_language
        if not self.path.is_dir():
            raise InputError(f"There is no folder {path}.")
        self.config = self.read_json("config.json")
        files = self._weight_files()
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

    def _weight_files(self):
        """Return the safetensors files: the only one, or those that the index of several shards names."""
        if (self.path / INDEX).is_file():
            named = self.read_json(INDEX).get("weight_map", {})
            if not isinstance(named, dict) or not all(isinstance(name, str) for name in named.values()):
                raise InputError(f"{self.path / INDEX}: weight_map must name the file of each tensor.")
            files = [self.path / Path(name).name for name in sorted(set(named.values()))]
            if missing := [file for file in files if not file.is_file()]:
                raise InputError(f"{missing[0]} is missing, one of {len(files)} shards that {INDEX} names.")
            return files
        return sorted(self.path.glob("model*.safetensors"))

    def read_json(self, name: str) -> dict[str, Any]:
        """Return the content of a JSON file in the folder, which must be an object."""
        table = read_json(self.path / name)
        if not isinstance(table, dict):
            raise InputError(f"{self.path / name} is not a JSON object.")
        return table

    def tokenizer_settings(self) -> dict[str, Any]:
        """Return the content of `tokenizer_config.json`, empty if there is none."""
        return self.read_json("tokenizer_config.json") if (self.path / "tokenizer_config.json").is_file() else {}

    def setting(self, name: str, default: Any = None) -> Any:
        """Return a value of `config.json`; `InputError` if it is missing and there is no default."""
        if name not in self.config and default is None:
            raise InputError(f"{self.path / 'config.json'} says nothing about {name!r}.")
        return self.config.get(name, default)

    def require(self, **wanted: Any) -> None:
        """Refuse a config with a setting that our models do not support.

        Raises:
            InputError: a setting differs from the wanted value; the message names both.
        """
        for name, value in wanted.items():
            if self.config.get(name, value) != value:
                raise InputError(
                    f"{self.path / 'config.json'}: {name} = {self.config[name]!r} is not supported, only {value!r}."
                )


class Tensors:
    """Arrays by name, each of which is taken once.

    Args:
        arrays: dict of arrays by name.
        origin: path for error messages.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], origin: object):
        self._left, self.origin = dict(arrays), origin

    def __contains__(self, name: object) -> bool:
        return name in self._left

    def take(self, name: str, *shape: int) -> np.ndarray:
        """Return an array as float32, and remove it.

        Raises:
            InputError: it is missing, or its shape does not match the config.
        """
        if name not in self._left:
            raise InputError(f"{self.origin} lacks the tensor {name!r}.")
        array = self._left.pop(name)
        if array.shape != shape:
            raise InputError(f"{self.origin}: the tensor {name!r} has the shape {array.shape}, expected {shape}.")
        return np.asarray(array, np.float32)

    def alike(self, *names: str) -> bool:
        """Return whether those of the named tensors that exist are equal."""
        arrays = [self._left[name] for name in names if name in self._left]
        return all(np.array_equal(arrays[0], other) for other in arrays[1:])

    def rename(self, ends: Mapping[str, str]) -> None:
        """Give tensors whose names have one of these endings the other one: a dict from old to new endings."""
        for old, new in ends.items():
            self._left = {
                name.removesuffix(old) + new if name.endswith(old) else name: array
                for name, array in self._left.items()
            }

    def drop(self, *beginnings: str) -> None:
        """Remove unneeded tensors: all whose names have one of these prefixes."""
        self._left = {name: array for name, array in self._left.items() if not name.startswith(beginnings)}

    def finish(self) -> None:
        """Refuse tensors that were not taken: the model would differ from the trained one."""
        if self._left:
            raise InputError(f"{self.origin} has a tensor that such a model does not use: {min(self._left)!r}.")
