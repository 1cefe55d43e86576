"""The state of a tuning and its recipe, which are kept in its folder."""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from heedful.config import Config, settings
from heedful.core.errors import InputError
from heedful.core.storage import write_text
from heedful.core.validation import read_json
from heedful.workflows.tuning.trials import LOWER_IS_BETTER, Round, Trial

Chosen = Mapping[str, tuple[Any, str]]  # settings by full name, with the reasons
STATE, RECIPE = "tuning.json", "recipe.toml"
REDUCTION = 3  # one trial in three enters the next round
OWN = 2  # trials with the recipe's own settings, which differ in their seeds


@dataclasses.dataclass
class Tuning:
    """A search with its results so far, which are saved after every trial.

    Args:
        folder: where everything is kept.
        rounds: how long the trials of each round train, and by which score they are then compared.
        trials: the first `OWN` have the recipe's own settings.
        minutes: for all trials together; 0: their rounds are counted in updates.
        chosen: settings that the recipe leaves open, as they are chosen for its text, by full name, with the reasons.
            The other trials have them.
    """

    folder: Path
    rounds: list[Round]
    trials: list[Trial]
    minutes: float = 0.0
    chosen: Chosen = dataclasses.field(default_factory=dict)

    def ranked(self, number: int) -> list[int]:
        """Return the trials that have finished a round (from 0), the best one first."""
        done = [index for index, trial in enumerate(self.trials) if len(trial.scores) > number]
        sign = 1 if self.rounds[number].metric in LOWER_IS_BETTER else -1
        return sorted(done, key=lambda index: (sign * self.trials[index].scores[number], index))

    def entering(self, number: int) -> list[int]:
        """Return the trials of a round: all, or the best third of the round before, two at least."""
        if number == 0:
            return list(range(len(self.trials)))
        before = self.ranked(number - 1)
        return sorted(before[: max(2, math.ceil(len(before) / REDUCTION))])

    def best(self) -> int:
        """Return the best trial of the last round that any trial has finished."""
        for number in reversed(range(len(self.rounds))):
            if ranked := self.ranked(number):
                return ranked[0]
        raise InputError(f"No trial of {self.folder} has finished: {self.trials[0].failure or 'none was trained'}.")

    def save(self) -> None:
        """Write the state."""
        state = {
            "minutes": self.minutes, "rounds": [dataclasses.asdict(each) for each in self.rounds],
            "trials": [dataclasses.asdict(trial) for trial in self.trials], "chosen": self.chosen,
        }  # fmt: skip
        write_text(self.folder / STATE, json.dumps(state, indent=2) + "\n")

    @classmethod
    def load(cls, folder: Path) -> "Tuning":
        """Read the state of a folder; `InputError` if it holds none."""
        if not (folder / STATE).is_file():
            raise InputError(f"{folder} holds no tuning to continue.")
        state = read_json(folder / STATE)
        try:
            metric = {"metric": state["metric"]} if "metric" in state else {}  # one for all rounds, in older states
            rounds = [Round(**each | metric) for each in state["rounds"]]
            trials = [Trial(**each) for each in state["trials"]]
            chosen = {name: (value, reason) for name, (value, reason) in state.get("chosen", {}).items()}
            return cls(folder, rounds, trials, state["minutes"], chosen)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{folder / STATE} is not the state of a tuning: {error}.") from error

    def describe(self, index: int) -> str:
        """Return what a trial tries, as text."""
        values, common = self.trials[index].settings, self.chosen_values()
        tried = [f"{name.split('.')[-1]} {value}" for name, value in values.items() if common.get(name) != value]
        return ", ".join(tried) or f"the settings that are {'chosen for the text' if values else 'in the recipe'}"

    def chosen_values(self) -> dict[str, Any]:
        """Return the chosen settings without the reasons."""
        return {name: value for name, (value, _) in self.chosen.items()}

    def complete(self, config: Config) -> Config:
        """Return the config of the recipe with the chosen settings."""
        return settings.override(config, settings.as_arguments(self.chosen_values()))

    def second_seed_difference(self) -> float | None:
        """Return the difference after the first round of the two trials that differ in their seeds only."""
        scores: Sequence[list[float]] = [trial.scores for trial in self.trials[:OWN]]
        return abs(scores[0][0] - scores[1][0]) if all(scores) else None


def with_peak_rate(config: Config) -> Config:
    """Return an equivalent config whose learning rate is its highest one.

    The paper's schedule has a factor instead, which other schedules would not understand.
    """
    train = config.train
    if train.schedule != "paper":
        return config
    peak = train.highest_rate(config.model.d_model)
    train = dataclasses.replace(train, schedule="inverse_square_root", learning_rate=peak)
    return dataclasses.replace(config, train=train)


def recipe_text(config: Config, table: Mapping[str, Any], given: Iterable[str]) -> str:
    """Return a recipe as TOML.

    Args:
        config: the values.
        table: the original recipe, whose keys are kept.
        given: further keys, by the full names of settings.
    """
    names = settings.names_in(table)
    names += [name for name in given if name not in names and "." in name]
    values = settings.flat(config)
    return settings.recipe_toml({name: values[name] for name in ("name", "task", *names)})
