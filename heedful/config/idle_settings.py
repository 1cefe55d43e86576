"""Settings that the user has given and that would have no effect: refused, since they would be recorded as used."""

import re
from collections.abc import Callable, Iterable

from heedful.config import OF_SOURCE, Config
from heedful.config.settings import meanings
from heedful.core.errors import InputError
from heedful.core.plugins import find_task

# Settings of some tasks begin their descriptions with the names of these tasks.
_OF_TASKS = re.compile(r"((?:translate|generate|fill|classify)(?:, (?:translate|generate|fill|classify))*)\b[^:.]*: ")
# For a setting: whether it has an effect, and what it needs.
_NEEDS: dict[str, tuple[Callable[[Config], object], str]] = {
    "data.fresh": (lambda c: c.data.corpus == "reverse", "data.corpus = 'reverse'"),
    "data.general_share": (lambda c: c.data.general, "data.general"),
    "data.held_out": (lambda c: not c.data.valid, "no data.valid"),
    "data.length": (lambda c: c.data.corpus == "reverse", "data.corpus = 'reverse'"),
    "data.repeats_counted_in": (lambda c: c.data.corpus == "reverse", "data.corpus = 'reverse'"),
    "data.sentences": (lambda c: c.data.corpus in ("phrasebook", "reverse"), "a built-in data.corpus"),
    "model.causal_mask": (lambda c: find_task(c.task).writes, "a task that writes text"),
    "model.pooler_activation": (lambda c: c.model.pooling == "first", "model.pooling = 'first'"),
    "model.rotary_base": (lambda c: c.model.positions == "rotary", "model.positions = 'rotary'"),
    "tokenizer.clean_up_spaces": (lambda c: c.tokenizer.kind == "wordpiece", "tokenizer.kind = 'wordpiece'"),
    "train.consistency_weight": (lambda c: c.train.consistency != "none", "train.consistency"),
    "train.decay_share": (lambda c: c.train.schedule == "wsd", "train.schedule = 'wsd'"),
    "train.final_learning_rate": (lambda c: c.train.schedule_ends, "a schedule that ends, such as 'cosine'"),
    "train.general_tolerance": (lambda c: c.data.general_valid, "data.general_valid"),
    "train.lora_alpha": (lambda c: c.train.lora_rank, "train.lora_rank"),
    "train.lora_weights": (lambda c: c.train.lora_rank, "train.lora_rank"),
    "train.minutes_of": (lambda c: c.train.minutes, "train.minutes"),
    "train.updates": (lambda c: not c.train.epochs, "train.epochs = 0, since epochs count the updates"),
} | {f"decode.{name}": (lambda c: find_task(c.task).translates, "task = 'translate'") for name in OF_SOURCE}
# Settings that the last steps of a training use, after its last update.
_USED_AT_THE_END = (
    "train.average", "train.keep", "train.select_by", "train.minutes", "train.updates", "train.epochs",
    "train.general_tolerance", "train.calibrate", "train.score",
)  # fmt: skip
_BEFORE_UPDATES = ("train.check", "train.examine", "name")


def refuse_idle(config: Config, names: Iterable[str]) -> None:
    """Raise `InputError` if one of the settings that were given, by their full names, has no effect in a config.

    Tasks of other packages may use any setting.
    """
    for name in names:
        if needs := _needed(config, name):
            raise InputError(f"--{name} would have no effect here: it needs {needs}. Leave it out.")


def _needed(config: Config, name: str) -> str:
    """Return what a setting needs, if a config does not have it."""
    if needs := _task_needed(config.task, name):
        return needs
    if name.startswith("decode.") and not find_task(config.task).writes:
        return "a task that writes text"
    has_effect, needs = _NEEDS.get(name, (None, ""))
    return needs if has_effect and not has_effect(config) else ""


def is_of_task(task: str, name: str) -> bool:
    """Return whether a setting, by its full name, is one of a task."""
    return not _task_needed(task, name)


def _task_needed(task: str, name: str) -> str:
    """Return which tasks use a setting; empty if this one does."""
    of_tasks = _OF_TASKS.match(meanings()[name][-1]) if name in meanings() else None
    if of_tasks and _is_built_in(task) and task not in of_tasks[1].split(", "):
        return f"task = {' or '.join(map(repr, of_tasks[1].split(', ')))}"
    return ""


def refuse_idle_on_resuming(config: Config, names: Iterable[str], done: int) -> None:
    """Raise `InputError` if a setting that is changed on resuming has no effect.

    Args:
        config: with the changed settings.
        names: the full names of those that were given.
        done: number of updates of the run.
    """
    names = list(names)
    for name in names:
        if name in _BEFORE_UPDATES:
            raise InputError(f"--{name} would have no effect here: it is used before the first update. Leave it out.")
    if "train.updates" in names and config.train.updates < done:
        raise InputError(f"The run has {done:,} updates already: --train.updates {config.train.updates} is fewer.")
    late = [name for name in names if name.startswith("train.") or name.endswith("dropout")]
    late = [name for name in late if name not in _USED_AT_THE_END]
    if late and done and done >= config.train.updates and not config.train.epochs:
        raise InputError(
            f"--{late[0]} would have no effect: all {done:,} updates are done. Give a larger --train.updates too."
        )
    refuse_idle(config, names)


def _is_built_in(task: str) -> bool:
    return type(find_task(task)).__module__.startswith("heedful.")
