"""Export of a trained run to a folder in the Hugging Face layout, which `transformers` opens.

The class is the first one of `heedful.interop.pretrained.architectures` that fits the options of the model exactly.
"""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors.numpy

from heedful import __version__
from heedful.core.errors import InputError, InputWarning
from heedful.core.special_tokens import (
    END,
    END_ID,
    MASK,
    PAD,
    PAD_ID,
    START,
    START_ID,
    UNKNOWN,
)
from heedful.inference.generator import DEFAULT_LENGTH
from heedful.interop.export.folders import ORIGIN, PARITY, replacing, write_origin
from heedful.interop.export.formats import Format
from heedful.interop.export.model_card import model_card
from heedful.interop.export.plain_search import never_written_ids, read_tokens
from heedful.interop.export.transformers_engine import TransformersExport, require_transformers
from heedful.interop.pretrained.architectures import LAYOUTS
from heedful.interop.pretrained.sentence_encoder import EMBEDDING_FILES, write_embedding_options
from heedful.interop.pretrained.vocabulary import template
from heedful.runs.weights import weights_by_name

if TYPE_CHECKING:
    from heedful.runs.run import Run


def export(run: "Run", folder: str | Path) -> Path:
    """Write a `Run` as a folder in the Hugging Face layout: model, tokenizer, settings, model card.

    Raises:
        InputError: no class of transformers has the options of the model; or the folder holds something else.
    """
    with replacing(Path(folder), FORMAT.files) as aside:
        write(run, aside)
    return Path(folder)


def fitting_layout(run: "Run", model: Any, weights: Any) -> Any:
    """Return the layout whose class has all options of a run's model.

    Raises:
        InputError: there is none; the message names the options that the nearest one lacks.
    """
    misfits = {
        layout.kind: layout.misfits(run.config, weights)
        for layout in LAYOUTS.values()
        if isinstance(model, layout.models)
    }
    if not misfits:
        raise InputError(f"There is no class of transformers for models of task = {run.config.task!r}.")
    kind = min(misfits, key=lambda kind: len(misfits[kind]))
    if misfits[kind]:
        raise InputError(
            f"No class of transformers has all options of this model; the nearest one, {kind}, lacks "
            f"{', '.join(misfits[kind])}."
        )
    return LAYOUTS[kind]


def write(run: "Run", folder: Path, quantization: str = "float32") -> None:
    """Write all files of an export of `run` into an empty folder; there is no quantization but float32."""
    model = run.load_model()
    weights = weights_by_name(model)
    layout = fitting_layout(run, model, weights)
    settings, tensors = layout.write(run.config, weights, tuple(map(len, run.tokenizers())))
    (folder / "model.safetensors").write_bytes(safetensors.numpy.save(tensors, metadata={"format": "pt"}))
    write_description(run, folder, settings, model_card(run, settings["architectures"][0]))


def write_description(run: "Run", folder: Path, settings: Mapping[str, Any], card: str) -> None:
    """Write everything but the weights into an empty folder: settings, tokenizers and model card."""
    config = run.config
    _write_json(folder / "config.json", {**settings, "torch_dtype": "float32", "heedful_version": __version__})
    if run.task.translates or run.task.writes:
        _write_json(folder / "generation_config.json", generation_config(run))
        if lost := [f"decode.{name} = {value!r}" for name, value in config.decode.lacking("transformers").items()]:
            warnings.warn(
                f"transformers ignores {', '.join(lost)}: it has no such setting.", InputWarning, stacklevel=2
            )
        if config.decode.repetition_penalty != 1 and (not run.task.translates or config.decode.beam_size > 1):
            warnings.warn(
                "transformers applies decode.repetition_penalty in another way: to the tokens of a prompt too, and "
                "in a beam to log-probabilities.", InputWarning, stacklevel=2,
            )  # fmt: skip
    if run.task.embeds and not config.data.labels:
        write_embedding_options(folder, config.model)
    _write_tokenizer(run, run.tokenizers()[0], folder)
    if run.task.translates and config.model.tie in ("none", "target"):  # each side has its own table
        (folder / "target").mkdir()
        _write_tokenizer(run, run.target_tokenizer, folder / "target")
    write_origin(folder, run)
    (folder / "README.md").write_text(card, encoding="utf-8")


def generation_config(run: "Run") -> dict[str, Any]:
    """Return the settings of a search, as `transformers` names them, nearest to those of a run.

    A language model writes at most half as many tokens as it has positions, so that prompts of the other half fit.
    """
    decode = run.config.decode
    config: dict[str, Any] = {"pad_token_id": PAD_ID, "bos_token_id": START_ID, "eos_token_id": END_ID}
    config |= decode.called_in("transformers") | {"suppress_tokens": never_written_ids(run)}
    if decode.beam_size > 1:
        config["early_stopping"] = True if decode.stop == "width" else "never"
    else:
        del config["length_penalty"]
    if run.task.translates:
        longest = min(decode.max_length or run.config.model.max_length, run.config.model.max_length)
        config |= {"decoder_start_token_id": START_ID, "max_length": longest + 1}  # with the start
        if run.target_tokenizer.prefix_ids:
            config["forced_bos_token_id"] = run.target_tokenizer.prefix_ids[0]
    else:
        config["max_new_tokens"] = min(config.pop("max_length") or DEFAULT_LENGTH, run.config.model.max_length // 2)
    unset = {"min_new_tokens": 0, "no_repeat_ngram_size": 0, "repetition_penalty": 1.0, "min_p": 0.0}
    return {name: value for name, value in config.items() if name not in unset or value != unset[name]}


def _write_tokenizer(run, tokenizer, folder):
    """Write a tokenizer that adds the special tokens that the model has been trained with."""
    data = json.loads(tokenizer.to_json())
    if run.task.translates:
        before, after = list(map(tokenizer.lookup, tokenizer.prefix_ids)), [END]
    elif run.task.writes:
        before, after = [START] if run.task.starts_texts(run.config) else [], []
    else:
        before, after = [START], [END]
    data["post_processor"] = template(before, after, tokenizer.lookup) if before or after else None
    _write_json(folder / "tokenizer.json", data)
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": read_tokens(run.config),
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,  # "[END]" in a text is text
        "model_input_names": ["input_ids", "attention_mask"],
        "pad_token": PAD, "unk_token": UNKNOWN, "bos_token": START, "eos_token": END, "padding_side": "right",
    }  # fmt: skip
    if run.task.writes and not run.task.translates:
        settings["padding_side"] = "left"  # a prompt must end where its continuation begins
    if not run.task.writes:
        settings |= {"cls_token": START, "sep_token": END}
    if tokenizer.mask_id is not None:
        settings |= {"mask_token": MASK, "split_special_tokens": False}
    _write_json(folder / "tokenizer_config.json", settings)


def _write_json(path, content):
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


FORMAT = Format(
    library="transformers",
    require=require_transformers,
    files=(
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
        "target", *EMBEDDING_FILES, "README.md", ORIGIN, PARITY,
    ),
    quantizations=("float32",),
    write=write,
    open=TransformersExport,
)  # fmt: skip
