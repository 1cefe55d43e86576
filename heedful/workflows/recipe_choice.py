"""A config for a text that comes without a recipe: settings by its size and the time, with the reason for each."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from heedful import backend
from heedful.config import Config, settings
from heedful.core.plugins import find_task
from heedful.data.corpus import Corpus
from heedful.data.text_files import uncompressed_name
from heedful.tasks.suggestions import facts_of
from heedful.tasks.task import Task
from heedful.training.machine import product_rate

MINUTES = 15.0
UNKNOWN_RATE = 5e13  # matrix products of an accelerator that is not known, in operations per second


class Choice(NamedTuple):
    """A config that was chosen for a text, and where each of its settings came from, by full name."""

    config: Config
    origins: dict[str, str]

    def lines(self) -> list[str]:
        """Return the chosen settings with their reasons, those of one reason in a line."""
        values, reasons = settings.flat(self.config), dict[str, list[str]]()
        for name, origin in self.origins.items():
            if origin.startswith(CHOSEN):
                reasons.setdefault(origin.removeprefix(CHOSEN), []).append(f"{name} {_shown(values[name])}")
        return [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]


CHOSEN = "chosen: "  # begins the origin of such a setting


def choose_recipe(
    text: Sequence[str],
    valid: Sequence[str] = (),
    test: Sequence[str] = (),
    task: str = "translate",
    minutes: float | None = None,
    overrides: Sequence[str] = (),
) -> Choice:
    """Return a config for a text, chosen by its size, the length of its lines, the time, and the speed of this machine.

    Args:
        text: files of the training text, as in `data.train`.
        valid, test: files of the validation and test text.
        task: what the model is for.
        minutes: of training; None: `MINUTES`.
        overrides: `--section.key value` arguments, which count more than what is chosen.

    Raises:
        InputError: files are missing, the task has no suggestions, or a setting is wrong.
    """
    data: dict[str, Any] = {"train": list(text), "valid": list(valid), "test": list(test)}
    table: dict[str, Any] = {"name": _name_of(text[0]), "task": task, "data": data}
    chosen = find_task(task)
    corpus = chosen.find_corpora(settings.of_table(table, overrides))["train"]
    seconds = 60 * (MINUTES if minutes is None else minutes)
    facts = facts_of(_sides(chosen, corpus), seconds, product_rate() or UNKNOWN_RATE)
    origins = {f"data.{part}": settings.COMMAND_LINE for part, files in data.items() if files}
    for values, reason in chosen.suggest(facts, backend.device() != "cpu"):
        for name, value in values.items():
            section, _, key = name.partition(".")
            table.setdefault(section, {})[key] = list(value) if isinstance(value, tuple) else value
            origins[name] = f"{CHOSEN}{reason}"
    if minutes is not None:
        origins["train.minutes"] = settings.COMMAND_LINE
    origins |= settings.origins(None, overrides)
    return Choice(settings.of_table(table, overrides), origins)


def _name_of(path: str) -> str:
    """Return the name of a run for a training text: `train` for `data/train.de.gz`."""
    return Path(uncompressed_name(Path(path))).name.split(".")[0] or "run"


def _sides(task: Task, corpus: Corpus) -> Iterator[Sequence[str]]:
    """Yield what counts as text of each item of a corpus."""
    for item in corpus:
        pair = task.pair_of(item)
        yield (item,) if pair is None else pair if task.translates else pair[:1]


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
