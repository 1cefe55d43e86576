"""What the layouts of pretrained models have in common: settings, activations, and the result of reading one."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from heedful import backend
from heedful.config import Config, DataConfig, ModelConfig, TokenizerConfig
from heedful.core.errors import InputError
from heedful.core.special_tokens import END, END_ID, MASK, PAD, PAD_ID, START, START_ID, UNKNOWN, UNKNOWN_ID
from heedful.data.tokenizer import Tokenizer
from heedful.interop.engines import EVERY_HEAD, Engine, has_full_heads
from heedful.layers import sinusoid

# Names of activations in a config.json; the first name of each of ours is the one that is written.
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu",
               "silu": "silu", "swish": "silu"}  # fmt: skip
LARGEST_EPSILON = 1e-4  # norms with a smaller one compute the same with 1e-5, but for rounding
SINES = ("sinusoidal", "sinusoidal_concatenated")
ENCODER_ROLES = {PAD: "pad_token", UNKNOWN: "unk_token", START: "cls_token", END: "sep_token", MASK: "mask_token"}
SPECIAL_IDS = {
    "pad_token_id": PAD_ID, "unk_token_id": UNKNOWN_ID, "bos_token_id": START_ID, "eos_token_id": END_ID,
}  # fmt: skip


class Imported(NamedTuple):
    """A pretrained model, converted to our config, tokenizers and weights."""

    config: Config
    tokenizers: tuple[Tokenizer, ...]  # one, or those of source and target
    weights: dict[str, np.ndarray]  # arrays by our weight names


class Exported(NamedTuple):
    """A run's model in the layout of a class of transformers."""

    settings: dict[str, Any]  # of config.json
    tensors: dict[str, np.ndarray]


def model_config(**options: Any) -> ModelConfig:
    """Return a `ModelConfig` whose options come from a `config.json`; a wrong one is an error of `ModelConfig`."""
    return ModelConfig(**options)


ONE_LABEL, SEVERAL_LABELS = "single_label_classification", "multi_label_classification"  # values of problem_type


def imported_config(task: str, model: ModelConfig, joint: bool = True, **data: Any) -> Config:
    """Return the config of an imported model; `data` are settings of its section, such as `max_tokens`."""
    limits = DataConfig(**{"max_tokens": min(100, model.max_length)} | data)
    return Config(task=task, name="imported", data=limits, tokenizer=TokenizerConfig(joint=joint), model=model)


def read_activation(folder: Any, name: str) -> str:
    """Return our name of the activation in a setting of `config.json`; `InputError` if we lack it."""
    value = folder.setting(name)
    if value not in ACTIVATIONS:
        raise InputError(
            f"{folder.path / 'config.json'}: the activation {value!r} is not one of {', '.join(ACTIVATIONS)}."
        )
    return ACTIVATIONS[value]


def written_activation(name: str) -> str:
    """Return the name of our activation in a `config.json`."""
    return next(theirs for theirs, ours in ACTIVATIONS.items() if ours == name)


def class_of(name: str, **values: Collection[Any]) -> Engine:
    """Return what a class of transformers with layer norms computes; `values` are those of options, see `Engine`."""
    shared: dict[str, Collection[Any]] = {
        "norm": ("layer",), "activation": tuple(dict.fromkeys(ACTIVATIONS.values())),
    }  # fmt: skip
    conditions = {"model.head_dim other than d_model / num_heads": has_full_heads}
    return Engine(name, shared | values, any_value=EVERY_HEAD, conditions=conditions)


def fixed_epsilon_misfit(name: str, model: ModelConfig) -> dict[str, str]:
    """Return the misfit of a class whose norms have an epsilon of 1e-5 or less, whatever its config.json says."""
    if model.norm_epsilon <= LARGEST_EPSILON:
        return {}
    return {f"model.norm_epsilon = {model.norm_epsilon:g}": f"that of {name} is fixed"}


def with_full_heads(model: ModelConfig, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return weights in which each query head has its own copy of its key and value head."""
    groups = model.num_heads // model.kv_heads
    if groups == 1:
        return dict(weights)
    size = model.head_size
    kept = model.num_heads * size  # the queries

    def widened(array, first):
        heads = array[..., first:].reshape(*array.shape[:-1], -1, size)
        return np.concatenate([array[..., :first], np.repeat(heads, groups, -2).reshape(*array.shape[:-1], -1)], -1)

    full = {}
    for name, array in weights.items():
        if "/query_key_value/" in name:
            full[name] = widened(array, kept)
        elif "/key_value/" in name:
            full[name] = widened(array, 0)
        else:
            full[name] = array
    return full


def without_scale(model: ModelConfig, weights: Mapping[str, np.ndarray]) -> tuple[bool, dict[str, np.ndarray]]:
    """Return whether the tables of input and output are one, and weights of an equal model without `embedding_scale`.

    A model that scales its embeddings by sqrt(d_model) gets a scaled table, and an output projection of its own.
    """
    weights, tied = dict(weights), model.tie in ("target", "all")
    table = weights["embedding/embeddings"]
    if not model.embedding_scale:
        return tied, weights
    if tied and "output_projection/embeddings" not in weights:  # a classifier has a projection of its own
        weights["output_projection/embeddings"] = table
        if "embedding/bias" in weights:
            weights["output_projection/bias"] = weights.pop("embedding/bias")
    return False, weights | {"embedding/embeddings": table * np.float32(model.d_model) ** np.float32(0.5)}


def sine_tables(model: Any) -> Any:
    """Return the tables of sines and cosines by the names of learned positions; none if positions are learned."""
    if model.positions not in SINES:
        return {}
    table = backend.to_numpy(sinusoid(np.arange(model.max_length), model.d_model, concatenated=True))
    return {f"{side}_input/positions/embeddings": np.asarray(table) for side in ("source", "target")}


def sines_first(model: Any, weights: Any) -> Any:
    """Return weights of an equal model whose positions have all sines before all cosines: every d_model axis permuted.

    Only the axes between the blocks are permuted; heads and the inner layers of feed-forward networks stay.
    """
    order = np.concatenate([np.arange(0, model.d_model, 2), np.arange(1, model.d_model, 2)])
    written = ("/self_attention/output/", "/cross_attention/output/", "/feed_forward/outer/")
    reordered = {}
    for name, array in weights.items():
        if name.endswith(("/embeddings", "/gamma", "/beta")) or any(part in name for part in written):
            reordered[name] = array[..., order]
        elif name.endswith("/kernel"):
            reordered[name] = array[order]
        else:
            reordered[name] = array
    return reordered
