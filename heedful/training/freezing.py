"""What a training changes: frozen weights, adapters, and learning rates of parts."""

import fnmatch
from collections.abc import Sequence
from typing import TYPE_CHECKING

from heedful.config import Config, TrainConfig
from heedful.core.errors import InputError
from heedful.core.plugins import find_task
from heedful.core.storage import name_in_model
from heedful.runs.adapters import add_adapters

if TYPE_CHECKING:
    import keras


def matching_weights(model: "keras.Model", patterns: Sequence[str]) -> list[str]:
    """Return the names of the weights that match shell patterns, such as `encoder/*`.

    Raises:
        InputError: a pattern matches no weight; the message names some that exist.
    """
    names = [name_in_model(weight) for weight in model.weights]
    _require_matches(names, patterns, "train.freeze_weights")
    return [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def _require_matches(names, patterns, setting):
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            parts = ", ".join(sorted({name.split("/")[0] + "/*" for name in names}))
            raise InputError(f"{setting}: no weight matches {pattern!r}; there are {parts}.")


def prepare_weights(model: "keras.Model", config: Config) -> None:
    """Freeze the weights that the config names, and add adapters if it has any.

    Raises:
        InputError: a pattern matches no weight, or all weights are frozen, or the rows of new tokens are.
    """
    train = config.train
    if train.freeze:
        model.freeze()  # type: ignore[attr-defined]
    frozen = set(matching_weights(model, train.freeze_weights))
    if train.lora_rank:
        frozen |= {name for name in map(name_in_model, model.weights) if not _trained_whole(name, config)}
    for weight in model.weights:
        if name_in_model(weight) in frozen:
            weight.trainable = False
    if config.tokenizer.new_tokens and train.freeze_weights:
        _require_trained_tables(model)
    if train.lora_rank:
        add_adapters(
            model, train.lora_weights, train.lora_rank, train.lora_alpha, train.seed,
            lambda name: _trained_whole(name, config),
        )  # fmt: skip
    if not model.trainable_weights:
        raise InputError("train.freeze_weights freezes all weights: there is nothing to train.")


def _require_trained_tables(model):
    """Raise `InputError` if the rows of new tokens would stay as they are."""
    from heedful.layers.embeddings import TokenEmbedding  # this loads Keras, which some commands do not need

    for layer in model._flatten_layers():
        if isinstance(layer, TokenEmbedding) and not layer.embeddings.trainable:
            name = name_in_model(layer.embeddings)
            raise InputError(f"tokenizer.new_tokens needs trained tables, and train.freeze_weights freezes {name}.")


def _trained_whole(name, config):
    """Return whether a weight outside the adapters is trained along with them: those of an output for a task."""
    task = find_task(config.task)
    return task.all_frozen and not name.startswith(tuple(own for _, own in task.starts_from))


def rate_factors(model: "keras.Model", train: TrainConfig) -> dict[str, float]:
    """Return the factors of the learning rate by the paths of weights; 1 where the config names none.

    Raises:
        InputError: a pattern matches no weight.
    """
    factors, weights = train.parsed_rate_factors(), model.trainable_weights
    _require_matches(
        [name_in_model(weight) for weight in weights], [pattern for pattern, _ in factors], "train.rate_factors"
    )
    factor_of = {}
    for weight in weights:
        matching = (factor for pattern, factor in factors if fnmatch.fnmatchcase(name_in_model(weight), pattern))
        factor_of[weight.path] = next(matching, 1.0)
    return factor_of
