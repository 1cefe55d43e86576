"""What a task says about configs."""

import dataclasses
from typing import ClassVar

from heedful.config import Config, DataConfig
from heedful.config.data import BUILT_IN
from heedful.config.named_texts import find
from heedful.core.errors import InputError
from heedful.tasks.suggestions import Given, Suggestion, TextFacts


class TaskConfig:
    """Which settings fit a task, and the values of those that a config leaves to it."""

    name: ClassVar[str]
    """As in the config: `task = NAME`."""
    selected_by: ClassVar[tuple[str, ...]] = ("loss", "accuracy")
    """Scores of a validation by which the best state can be selected (`train.select_by`)."""
    corpora: ClassVar[tuple[str, ...]] = ("files",)
    """Values that `data.corpus` may have."""
    translates: ClassVar[bool] = False
    """Whether the model is an encoder-decoder that translates, and a server offers it as a translator."""
    typical_recipe: ClassVar[str] = ""
    """The bundled recipe whose settings are taken for a text without a recipe; empty: the task needs a recipe."""
    whole_texts: ClassVar[bool] = True
    """Whether an example is a whole text, not a part of one."""

    def checked(self, config: Config) -> Config:
        """Return a config of the task with the values that it leaves to the task.

        Raises:
            InputError: a setting does not fit the task; the message says which one, and why.
        """
        config = self._completed(config)
        train, data = config.train, config.data
        if train.select_by is not None and train.select_by not in self.selected_by:
            raise InputError(
                f"train.select_by = {train.select_by!r} is not a score of task = {self.name!r}, which has "
                f"{', '.join(self.selected_by)}."
            )
        if data.corpus in BUILT_IN and data.corpus not in self.corpora:
            raise InputError(
                f"The built-in corpus {data.corpus!r} is not for task = {self.name!r}; name files in data.train."
            )
        if data.corpus not in ("files", *BUILT_IN):
            layout = find(data.corpus).layout
            if (layout == "pairs") != (self.text_layout(data) == "pairs"):
                raise InputError(f"The text {data.corpus!r} ({layout}) is not for task = {self.name!r}.")
        if config.tokenizer.prefix_space and not self.whole_texts:
            raise InputError(
                f"tokenizer.prefix_space is for tasks that read whole texts: those of task = {self.name!r} are cut "
                "anywhere."
            )
        if self.limits_length(config) and data.max_tokens > config.model.max_length:
            raise InputError(
                f"data.max_tokens ({data.max_tokens}) cannot exceed model.max_length ({config.model.max_length})."
            )
        if not self.translates and set(config.model.depths.values()) != {config.model.num_layers}:
            raise InputError(
                f"task = {self.name!r} has either an encoder or a decoder: set model.num_layers, not the depths of "
                f"both sides (model.size = {config.model.size!r}, model.encoder_layers, model.decoder_layers)."
            )
        self.check_config(config)
        return config

    def _completed(self, config):
        """Return a config with the values that depend on the task."""
        train, tokenizer = config.train, config.tokenizer
        if train.select_by is None:
            train = dataclasses.replace(train, select_by=self.default_selection(config))
        if tokenizer.normalize is None:
            tokenizer = dataclasses.replace(tokenizer, normalize="nfc" if self.whole_texts else "none")
        if (train, tokenizer) == (config.train, config.tokenizer):
            return config
        return dataclasses.replace(config, train=train, tokenizer=tokenizer)

    def check_config(self, config: Config) -> None:
        """Refuse a config that makes no sense for the task.

        Raises:
            InputError: the message says which settings, and why.
        """

    def default_selection(self, config: Config) -> str | None:
        """Return the score by which the best state is selected if the config sets none; None: `prepare` decides."""
        return "loss"

    def limits_length(self, config: Config) -> bool:
        """Return whether no text may be longer than `model.max_length`."""
        return True

    def completed_from(self, config: Config, other: Config) -> Config:
        """Return a config with those settings that only a run knows from `other`, an earlier config of the run.

        They are planned or measured, such as `data.planned_updates` and `data.several_sentences`.
        """
        return config

    def text_layout(self, data: DataConfig) -> str:
        """Return how the files of a `DataConfig` are laid out: `pairs`, `labelled`, `lines` or `documents`."""
        return "labelled" if data.documents == "labelled" else "lines" if data.documents == "lines" else "documents"

    def suggest(self, facts: TextFacts, given: Given) -> list[Suggestion]:
        """Return the settings that depend on a text without a recipe; the others are those of `typical_recipe`.

        Args:
            facts: about the text.
            given: the settings that the user gives: others that depend on them should fit.
        """
        return []
