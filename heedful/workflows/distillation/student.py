"""The config of a student: a smaller model for the text of its teacher."""

import dataclasses
import glob
from pathlib import Path
from typing import Any, Literal

from heedful.config import Config, ModelConfig
from heedful.config.data import BUILT_IN
from heedful.config.languages import languages_of
from heedful.config.model import DEPTHS, DEPTHS_OF_SIZE, SET_BY_SIZE, SIZES
from heedful.core.errors import InputError
from heedful.runs.run import Run
from heedful.workflows.distillation.plan import BACK_TAG, Plan
from heedful.workflows.distillation.records import ENDS, REAL, TAUGHT
from heedful.workflows.distillation.texts import SCORED

SIZE: Literal["student"] = "student"
MANY = 1_000_000  # updates: as many as fit into train.minutes


def config_like(run: Run) -> Config:
    """Return the config of a student with the text and the training of a run, but at most 6 and 2 blocks.

    Raises:
        InputError: the run was not trained on text that it names.
    """
    config = run.config
    if config.train.init_from or not (config.data.train or config.data.corpus in BUILT_IN):
        raise InputError(f"{run.path} names no text of its own to train on: give --recipe for the student.")
    data = dataclasses.replace(config.data, planned_updates=0, several_sentences=None)
    train = config.train
    if train.minutes and train.schedule_ends:  # the updates of the run are those that fitted into its minutes
        train = dataclasses.replace(train, updates=MANY)
    return dataclasses.replace(config, data=data, train=train, model=_smaller(config.model))


def _smaller(model: ModelConfig) -> ModelConfig:
    """Return a model of the size of a student; one that is as narrow already keeps its width.

    A decoder block costs most, since it runs once for each token: the student of a teacher with fewer than four has
    half of them, and no more encoder blocks than its teacher.
    """
    small: dict[str, Any] = dict(zip((*SET_BY_SIZE, *DEPTHS), (*SIZES[SIZE], *DEPTHS_OF_SIZE[SIZE]), strict=True))
    if model.depths["decoder"] < 2 * small["decoder_layers"]:
        small["num_layers"] = small["encoder_layers"] = min(small["encoder_layers"], model.depths["encoder"])
        small["decoder_layers"] = max(1, model.depths["decoder"] // 2)
    if model.d_model <= small["d_model"]:
        return dataclasses.replace(model, **{name: small[name] for name in ("num_layers", *DEPTHS)})
    return dataclasses.replace(model, size=SIZE, **small, head_dim=None, num_kv_heads=None)


def with_text(config: Config, folder: Path, plan: Plan) -> Config:
    """Return the config of a student that trains on the text in a folder, see `selection.Selection.write`."""
    if config.data.weights:
        raise InputError("data.weights is for files; the text of a student has --real-weight.")
    beginning = f"{glob.escape(str(folder))}/train-*" if plan.real_weight else str(folder / TAUGHT)
    source, target = languages_of(config)
    named: dict[str, Any] = {
        "train": tuple(beginning + end for end in ENDS),
        "source_language": config.data.source_language or source,
        "target_language": config.data.target_language or target,
        "weights": (f"{REAL}*={plan.real_weight:g}",) if plan.real_weight else (),
    }
    if config.data.corpus in BUILT_IN:
        named |= {part: tuple(str(folder / f"{part}{end}") for end in ENDS) for part in SCORED}
    data = dataclasses.replace(config.data, corpus="files", origin="", **named)
    tokens = config.tokenizer.new_tokens
    if plan.back and BACK_TAG not in tokens:
        tokens = (*tokens, BACK_TAG)
    return dataclasses.replace(config, data=data, tokenizer=dataclasses.replace(config.tokenizer, new_tokens=tokens))
