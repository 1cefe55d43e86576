"""A recipe for a text without one: settings chosen from its size and the training time, each with a reason."""

import copy
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from heedful import backend
from heedful.config import SET_BY_SIZE, Config, read_recipe, settings
from heedful.config.model import DEPTHS
from heedful.config.recipes import find_recipe
from heedful.config.settings import REPLACED
from heedful.core.errors import InputError
from heedful.core.plugins import find_task, task_names
from heedful.data.corpus import Corpus
from heedful.data.text_files import uncompressed_name
from heedful.tasks.suggestions import TextFacts, facts_of
from heedful.tasks.task import Task
from heedful.training.machine import product_rate

MINUTES = 15.0
UNKNOWN_RATE = 5e13  # matrix products of an accelerator that is not known, in operations per second
OF_TEXT = ("data.corpus", "data.train", "data.valid", "data.test")  # the settings that name the text
NAMING = frozenset({"name", "task", "data.origin", *OF_TEXT})
READING = ("data.documents", "data.held_out", "data.labels", "data.several_labels")  # how files are read
SIZES = tuple(f"model.{name}" for name in (*SET_BY_SIZE, *DEPTHS))
NUMBERS = (  # settings on which others depend
    "train.minutes", "train.updates", "model.d_model", "model.num_layers", "model.max_length", "tokenizer.vocab_size",
    "data.max_tokens", "data.batch_tokens",
)  # fmt: skip


class RecipeChoice(NamedTuple):
    """A recipe that was chosen for a text.

    Args:
        table: its sections, as in a TOML file, without what the user has given besides the text.
        config: with what the user has given.
        reasons: why a setting was chosen, by its full name.
        given: the settings that the user has given.
    """

    table: Mapping[str, Any]
    config: Config
    reasons: Mapping[str, str]
    given: frozenset[str]

    def origins(self) -> dict[str, str]:
        """Return where each setting came from."""
        return {name: f"chosen: {reason}" for name, reason in self.reasons.items()} | dict.fromkeys(
            self.given, settings.COMMAND_LINE
        )

    def lines(self) -> list[str]:
        """Return the chosen settings as lines of text, one for each reason."""
        values, names = settings.flat(self.config), dict[str, list[str]]()
        for name, reason in self.reasons.items():
            names.setdefault(reason, []).append(f"{name} {_shown(values[name])}")
        return [f"{', '.join(each)}: {reason}" for reason, each in names.items()]

    def toml(self) -> str:
        """Return the recipe as TOML, with the reasons as comments."""
        names = settings.names_in(self.table)
        names += [name for name in self.given if name not in names and "." in name]
        names.sort(key=lambda name: self.reasons.get(name, ""))
        values = settings.flat(self.config)
        return settings.recipe_toml({name: values[name] for name in ("name", "task", *names)}, self.reasons)


def suggesting_tasks() -> list[str]:
    """Return the names of the tasks that can be trained without a recipe."""
    return [name for name in task_names() if find_task(name).typical_recipe]


def choose_recipe(
    text: Sequence[str],
    valid: Sequence[str] = (),
    test: Sequence[str] = (),
    task: str = "translate",
    overrides: Sequence[str] = (),
    report: Callable[[str], Any] = print,
) -> RecipeChoice:
    """Return a recipe for a text, by its size, the length of its lines, the time, and the speed of this machine.

    Args:
        text: files of the training text, as in `data.train`.
        valid, test: files of the validation and test text.
        task: what the model is for.
        overrides: `--section.key value` arguments, which take precedence over the chosen settings.
        report: called with lines for the user.

    Raises:
        InputError: files are missing or empty, a translation task has no validation text, the task needs a recipe, or a
            setting is wrong.
    """
    own, given = find_task(task), settings.given_values(overrides)
    if not own.typical_recipe:
        raise InputError(f"task = {task!r} needs a recipe: settings are chosen for {', '.join(suggesting_tasks())}.")
    if names := [name for name in OF_TEXT if name in given]:
        raise InputError(f"--text, --valid and --test name the text: leave out --{names[0]}.")
    for name in set(NUMBERS) & given.keys():
        value, least = given[name], 0 if name == "train.minutes" else 1
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < math.inf:
            raise InputError(f"{name} ({value!r}) must be a number from {least} here: other settings are chosen by it.")
    sizes = _sizes(task, given["model.size"]) if "model.size" in given else {}
    files = {"train": list(text), "valid": list(valid), "test": list(test)}
    facts = _facts(own, files, given, report)
    table = read_recipe(find_recipe(own.typical_recipe))
    table["data"] = {key: value for key, value in table["data"].items() if f"data.{key}" not in OF_TEXT}
    table["data"].pop("origin", None)
    typical = f"as in the recipe {own.typical_recipe}"
    reasons = dict.fromkeys(settings.names_in(table), typical)
    for values, reason in own.suggest(facts, sizes | given):
        for name, value in values.items():
            section, _, key = name.partition(".")
            table.setdefault(section, {}).pop(key, None)
            reasons.pop(name, None)
            if value is not None:
                table[section][key] = value
                reasons[name] = reason
    table["name"] = re.sub(r"[^\w-]+", "", Path(uncompressed_name(Path(text[0]))).name.split(".")[0]) or "run"
    table["data"] |= {part: names for part, names in files.items() if names}
    config = settings.of_table(copy.deepcopy(table), overrides)
    kept = {name: reason for name, reason in reasons.items() if name not in sizes.keys() | given.keys()}
    known = {*given, *(f"data.{part}" for part, names in files.items() if names)}
    return RecipeChoice(table, config, kept, frozenset(known))


def choose_rest(
    config: Config, names: Iterable[str], length: Mapping[str, Any], report: Callable[[str], Any]
) -> dict[str, tuple[Any, str]]:
    """Return the settings that a recipe leaves open, as they are chosen for its text, by full name, with the reasons.

    Args:
        config: of the recipe.
        names: of the settings that the recipe has.
        length: `train.minutes` and `train.updates` of the training.
        report: called with lines for the user.
    """
    own, values = find_task(config.task), settings.flat(config)
    if not own.typical_recipe or config.data.corpus != "files" or config.train.init_from:
        return {}
    if own.translates and not config.data.valid:
        return {}
    fixed = {**{name: values[name] for name in names if name not in NAMING}, **length}
    if "model.size" in fixed:
        fixed |= {name: values[name] for name in SIZES}
    left_out = NAMING | fixed.keys() | {name for name, replaced in REPLACED.items() if fixed.keys() & {*replaced}}
    if fixed.get("data.batch_tokens") == "auto":
        del fixed["data.batch_tokens"]  # it is measured later
    try:
        arguments = settings.as_arguments(fixed)
        choice = choose_recipe(config.data.train, config.data.valid, (), config.task, arguments, report)
    except InputError as error:  # a chosen setting may contradict one of the recipe
        report(f"What the recipe leaves open has its default: {error}")
        return {}
    choice_values = settings.flat(choice.config)
    choice_values["train.learning_rate"] = choice.config.train.rate(choice.config.model.d_model)
    return {
        name: (choice_values[name], choice.reasons.get(name, "the default"))
        for name in settings.changed(config, choice.config) if name not in left_out
    }  # fmt: skip


def _sizes(task: str, size: Any) -> dict[str, Any]:
    """Return the settings that a `model.size` stands for, by full name."""
    values = settings.flat(settings.of_table({"name": "text", "task": task, "model": {"size": size}}))
    return {name: values[name] for name in SIZES if values[name] is not None}


def _facts(task: Task, files: Mapping[str, Any], given: Mapping[str, Any], report: Callable[[str], Any]) -> TextFacts:
    """Return the facts about a text; raise `InputError` if it is missing or empty."""
    minutes = given.get("train.minutes")
    updates = 0 if minutes else given.get("train.updates", 0)
    if minutes == 0 and not updates:
        raise InputError("--text needs minutes above 0, or --train.updates.")
    if task.translates and not files["valid"]:
        raise InputError("Name validation text after --valid.")
    reading = {name.partition(".")[2]: value for name, value in given.items() if name in READING}
    config = Config.from_table({"name": "text", "task": task.name, "data": {**files, **reading}}, settings.COMMAND_LINE)
    corpus = task.find_corpora(config)["train"]
    report(f"counting the words of {corpus.name} ...")
    rate = product_rate(given.get("train.precision", "float32")) or UNKNOWN_RATE
    facts = facts_of(
        _sides(task, corpus), seconds=0.0 if updates else 60 * (MINUTES if minutes is None else minutes),
        updates=updates, operations=rate, accelerator=backend.device() != "cpu",
    )  # fmt: skip
    if not facts.words:
        raise InputError(f"{corpus.name} has no words.")
    return facts


def _sides(task: Task, corpus: Corpus) -> Iterator[Sequence[str]]:
    """Yield what counts as text of each item of a corpus."""
    for item in corpus:
        pair = task.pair_of(item)
        yield (item,) if pair is None else pair if task.translates else pair[:1]


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
