"""Weights that a training does not change."""

import fnmatch
from collections.abc import Sequence
from typing import TYPE_CHECKING

from heedful.config import Config
from heedful.errors import InputError
from heedful.storage import name_in_model

if TYPE_CHECKING:
    import keras


def matching_weights(model: "keras.Model", patterns: Sequence[str]) -> list[str]:
    """Return the names of the weights that match shell patterns, such as `encoder/*`.

    Raises:
        InputError: a pattern matches no weight; the message names some that exist.
    """
    names = [name_in_model(weight) for weight in model.weights]
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            parts = ", ".join(sorted({name.split("/")[0] + "/*" for name in names}))
            raise InputError(f"train.freeze_weights: no weight matches {pattern!r}; there are {parts}.")
    return [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def freeze(model: "keras.Model", config: Config) -> None:
    """Freeze the weights that the config names.

    Raises:
        InputError: a pattern matches no weight, or all weights are frozen.
    """
    if config.train.freeze:
        model.freeze()  # type: ignore[attr-defined]
    frozen = set(matching_weights(model, config.train.freeze_weights))
    for weight in model.weights:
        if name_in_model(weight) in frozen:
            weight.trainable = False
    if not model.trainable_weights:
        raise InputError("train.freeze_weights freezes all weights: there is nothing to train.")
