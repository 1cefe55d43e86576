"""The complete config of a run, and how it is read and written."""

import dataclasses
import json
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heedful.config import format_1
from heedful.config.architecture import DROPOUTS
from heedful.config.data import DataConfig, TokenizerConfig
from heedful.config.decode import DecodeConfig
from heedful.config.model import ModelConfig
from heedful.config.train import BALANCED, TrainConfig
from heedful.core.errors import InputError
from heedful.core.plugins import find_task
from heedful.core.validation import from_dict, read_json

FORMAT = 2


@dataclass(frozen=True, kw_only=True)
class Config:
    """A complete run."""

    format: int = FORMAT
    """Version of this format; a newer one is refused."""
    task: str = "translate"
    """What the model is for: `translate` (encoder-decoder), `generate` (decoder-only), `fill` (encoder-only),
    `classify` (an encoder with classes), or a task from another package."""
    name: str = "run"
    """Name of the run, whose folder is runs/NAME unless --run says otherwise. In a recipe, by default the name of its
    file."""
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        if self.format > FORMAT:
            raise InputError(
                f"This run has format {self.format}; this version of heedful reads up to {FORMAT}. Upgrade heedful."
            )
        if self.model.tie in ("all", "inputs") and not self.tokenizer.joint:
            other = "target" if self.model.tie == "all" else "none"
            raise InputError(
                f"model.tie = {self.model.tie!r} needs one vocabulary: set tokenizer.joint = true, or tie = {other!r}."
            )
        if self.train.learning_rate is None:
            train = dataclasses.replace(self.train, learning_rate=self.train.rate(self.model.d_model))
            object.__setattr__(self, "train", train)
        if self.data.weights and BALANCED in self.train.class_weights:
            raise InputError(
                f"data.weights changes how often a class is read: give train.class_weights, not {BALANCED!r}."
            )
        self._refuse_pointless_passes()
        if self.data.bpe_dropout and not self.train.init_from and self.tokenizer.kind != "bpe":
            raise InputError(f"data.bpe_dropout needs tokenizer.kind = 'bpe', not {self.tokenizer.kind!r}.")
        if self.train.optimizer == "muon" and (self.train.rate_factors or self.train.lora_rank):
            raise InputError(
                "train.optimizer = 'muon' has one learning rate for whole matrices: it cannot be used with "
                "train.rate_factors or train.lora_rank."
            )
        if self.train.optimizer == "schedule_free":
            self._refuse_schedule()
        if not self.train.init_from:
            self._refuse_adaptation()
        if self.train.lora_rank and self.train.freeze:
            raise InputError("train.freeze would freeze the adapters of train.lora_rank too: leave it out.")
        if self.train.lora_rank and self.train.freeze_weights:
            raise InputError("train.lora_rank freezes all weights: name those to adapt in train.lora_weights instead.")
        for name in ("lora_rank", "freeze"):
            if getattr(self.train, name) and self.tokenizer.new_tokens:
                raise InputError(f"tokenizer.new_tokens needs trained tables, and train.{name} freezes them.")

    def _refuse_schedule(self) -> None:
        """Raise `InputError` if there is a schedule, or a second average, beside the schedule-free optimizer."""
        if self.train.schedule != "constant":
            raise InputError(
                "train.optimizer = 'schedule_free' has a constant learning rate after the warm-up: set "
                "train.schedule = 'constant'."
            )
        if self.train.moving_average:
            raise InputError(
                "train.optimizer = 'schedule_free' averages the weights itself: leave out train.moving_average."
            )
        if not self.train.beta_1:
            raise InputError("train.optimizer = 'schedule_free' needs train.beta_1 above 0, 0.9 in the paper.")

    def _refuse_pointless_passes(self) -> None:
        """Raise `InputError` if two passes over a text would be the same."""
        model, kind = self.model, self.train.consistency
        if kind == "sim_cut" and not model.token_dropout:
            raise InputError("train.consistency = 'sim_cut' needs model.token_dropout, 0.05 in the paper.")
        if kind == "r_drop" and not any(getattr(model, name) for name in DROPOUTS):
            raise InputError("train.consistency = 'r_drop' needs dropout: without it, both passes are the same.")

    def _refuse_adaptation(self) -> None:
        """Raise `InputError` if a setting changes how a trained model is trained further."""
        train = self.train
        reasons = {
            "train.freeze_weights": (train.freeze_weights, "random weights are not worth keeping"),
            "train.freeze": (train.freeze, "without it there is nothing to freeze"),
            "train.lora_rank": (train.lora_rank, "an adapter changes trained weights"),
            "data.general_valid": (self.data.general_valid, "it says what a trained model must not forget"),
        }
        for name, (value, reason) in reasons.items():
            if value:
                raise InputError(f"{name} needs train.init_from: {reason}.")

    @classmethod
    def from_table(cls, table: Any, origin: str) -> "Config":
        """Return the config of a table of settings, with the values that it leaves to its task.

        Raises:
            InputError: an unknown key, a value out of range, or one that does not fit the task; the message names
                `origin`.
        """
        config = from_dict(cls, table, origin)
        try:
            return find_task(config.task).checked(config)
        except InputError as error:
            raise InputError(f"{origin}: {error}") from error

    @classmethod
    def from_toml(cls, path: str | Path) -> "Config":
        """Read a recipe.

        Raises:
            InputError: the file is missing or not valid TOML, or has an unknown key or a value out of range.
        """
        return cls.from_table(read_recipe(path), str(path))

    @classmethod
    def from_json(cls, path: str | Path) -> "Config":
        """Read the `config.json` of a run folder; errors as in `from_toml`."""
        table = read_json(path)
        if isinstance(table, dict) and isinstance(table.get("format"), int) and table["format"] > FORMAT:
            table = {"format": table["format"]}  # report the format rather than its keys, which may be new
        if isinstance(table, dict):
            table = format_1.config_from_format_1(table, path, trained=True)
            if isinstance(table.get("tokenizer"), dict):  # before the setting existed, nothing was normalised
                table["tokenizer"].setdefault("normalize", "none")
        return cls.from_table(table, str(path))

    @classmethod
    def from_text(cls, text: str) -> "Config":
        """Return the config that `to_json` wrote as this text."""
        return cls.from_table(json.loads(text), "a config")

    def to_json(self) -> str:
        """Return the whole config as JSON text, defaults included."""
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False) + "\n"


def read_recipe(path: str | Path) -> dict[str, Any]:
    """Return the unchecked content of a recipe: its sections by name, and its `name`, by default that of the file."""
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8: byte {error.start}.") from error
    except (ValueError, RecursionError) as error:  # too many digits or brackets, besides invalid TOML
        raise InputError(f"{path} is not valid TOML: {error}.") from error
    return {"name": Path(path).stem} | format_1.config_from_format_1(table, path)
