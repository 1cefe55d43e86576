"""How a sentence encoder turns token vectors into one vector: the `modules.json` of sentence-transformers."""

import json
from pathlib import Path
from typing import Any

from heedful.core.errors import InputError
from heedful.core.storage import inside
from heedful.core.validation import read_json

MODULES, TRANSFORMER_CONFIG = "modules.json", "sentence_bert_config.json"
POOLING_FOLDER, NORMALIZE_FOLDER = "1_Pooling", "2_Normalize"
EMBEDDING_FILES = (MODULES, TRANSFORMER_CONFIG, POOLING_FOLDER, NORMALIZE_FOLDER)  # what an export writes
POOLINGS = {
    "pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "first", "pooling_mode_max_tokens": "max",
}  # fmt: skip


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


def write_embedding_options(folder: Path, model: Any) -> None:
    """Write how an encoder turns token vectors into one vector, as `embedding_options` and sentence-transformers read.

    Args:
        folder: of the export.
        model: the section [model] of a config.
    """
    modules = [("", "Transformer"), (POOLING_FOLDER, "Pooling")]
    if model.unit_vectors:
        modules.append((NORMALIZE_FOLDER, "Normalize"))
    listed = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(modules)
    ]
    pooling = {name: kind == model.vector_pooling for name, kind in POOLINGS.items()}
    for path, _ in modules[1:]:
        (folder / path).mkdir()
    for name, content in (
        (MODULES, listed),
        (TRANSFORMER_CONFIG, {"max_seq_length": model.max_length, "do_lower_case": False}),
        (f"{POOLING_FOLDER}/config.json", {"word_embedding_dimension": model.d_model} | pooling),
    ):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
