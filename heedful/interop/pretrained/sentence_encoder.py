"""How a sentence encoder turns token vectors into one vector: the `modules.json` of sentence-transformers."""

from typing import Any

from heedful.core.errors import InputError
from heedful.core.storage import inside
from heedful.core.validation import read_json

MODULES, TRANSFORMER_CONFIG = "modules.json", "sentence_bert_config.json"
POOLINGS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "first"}


def embedding_options(folder: Any) -> dict[str, Any]:
    """Return `vector_pooling`, `unit_vectors` and, if set, `max_length` of a `PretrainedFolder`; or nothing.

    Raises:
        InputError: a module or pooling is not supported.
    """
    if not (folder.path / MODULES).is_file():
        return {}
    modules = read_json(folder.path / MODULES)
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise InputError(f"{folder.path / MODULES} is not a list of modules.")
    options: dict[str, Any] = {"unit_vectors": False}
    for module in modules:
        kind = str(module.get("type", "")).rpartition(".")[2]
        if kind == "Pooling":
            options["vector_pooling"] = _pooling(inside(folder.path, module.get("path", "")) / "config.json")
        elif kind == "Normalize":
            options["unit_vectors"] = True
        elif kind != "Transformer":
            raise InputError(f"{folder.path / MODULES}: modules of type {kind!r} are not supported.")
    if (folder.path / TRANSFORMER_CONFIG).is_file() and (
        limit := folder.read_json(TRANSFORMER_CONFIG).get("max_seq_length")
    ):
        options["max_length"] = int(limit)
    return options


def _pooling(path):
    """Return our name of the pooling in the config of a pooling module."""
    settings = read_json(path)
    if not isinstance(settings, dict):
        raise InputError(f"{path} is not a JSON object.")
    chosen = [name for name, value in settings.items() if name.startswith("pooling_mode_") and value is True]
    if len(chosen) != 1 or chosen[0] not in POOLINGS:
        raise InputError(f"{path}: only {' or '.join(POOLINGS)} is supported.")
    return POOLINGS[chosen[0]]
