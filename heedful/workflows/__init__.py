"""From a config and its text to a trained and scored run."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from heedful import backend
from heedful.config import Config, architecture, settings
from heedful.core.errors import InputError
from heedful.runs.run import Run
from heedful.workflows.folder import require_free
from heedful.workflows.time_plan import continued_within_minutes
from heedful.workflows.training import Training

__all__ = ["Training", "default_folder", "plan", "require_free", "resume", "train"]

# Settings that cannot change when a training is resumed, besides those of tokenizer and model except `MAY_CHANGE`.
CREATED_WITH = (
    "data.corpus",
    "data.labels",
    "data.several_labels",
    "data.planned_updates",
    "data.protected",
    "data.terms",
    "train.init_from",
    "train.freeze",
    "train.freeze_weights",
    "tokenizer.new_tokens",
    "train.lora_rank",
    "train.lora_alpha",
    "train.lora_weights",
)
DROPOUTS = tuple(f"model.{name}" for name in architecture.DROPOUTS)
MAY_CHANGE = (*DROPOUTS, "model.max_length")


def default_folder(config: Config) -> Path:
    """Return the default folder of a run: runs/NAME."""
    return Path("runs") / config.name


def train(
    config: Config,
    path: str | Path | None = None,
    report: Callable[[str], Any] = print,
    force: bool = False,
    origins: Mapping[str, str] | None = None,
    plan_minutes: bool = True,
) -> Run:
    """Train a run from a `Config` and return it.

    Args:
        path: the run folder; runs/NAME by default.
        report: called with each line for the user.
        force: whether a run in the folder may be overwritten.
        origins: where settings came from, by their full names; stored in the run.
        plan_minutes: whether to set `train.updates` to what fits into `train.minutes`, if the schedule has an end.
    """
    path = path or default_folder(config)
    return Training.create(config, path, report, force, origins, plan_minutes).train()


def resume(
    path: str | Path,
    report: Callable[[str], Any] = print,
    config: Config | None = None,
    verify: bool = False,
    origins: Mapping[str, str] | None = None,
) -> Run:
    """Continue the training of a run folder exactly as if it had never stopped; `verify` first checks it by replay."""
    run = Run.open(path)
    if config is not None and config != run.config:
        config = run.task.completed_from(config, run.config)
        _require_same(run, config)
        if config.train.epochs and "train.updates" in (origins or {}):
            raise InputError(
                f"train.updates is counted from train.epochs = {config.train.epochs:g}: set train.epochs instead."
            )
        config.train.refuse_impossible_rate()
        config = _with_new_minutes(run, config, report)
        run = Run(path, config, *run.tokenizers())  # written to the folder once the state is known to fit it
    backend.training_devices(run.config.train.devices)  # refuses more than there are, before text is read
    return Training(run, report).train(True, verify, origins)


def _with_new_minutes(run, config, report):
    """Plan the updates again if `train.minutes` has changed and the schedule has an end."""
    old, new = run.config.train, config.train
    if not new.schedule_ends or not new.minutes or new.minutes == old.minutes or new.updates != old.updates:
        return config
    log = run.log.read()
    if not log:
        return config
    config = continued_within_minutes(config, log)
    report(f"planned {config.train.updates:,} updates for {new.minutes:g} minutes (before: {old.updates:,})")
    return config


def _require_same(run, config):
    """Refuse a config that changes what a run was created with: its vocabulary, its model, its classes."""
    run.of_task(config.task)
    old, new = settings.flat(run.task.completed_from(run.config, run.config)), settings.flat(config)
    for name in old:
        stays = name in CREATED_WITH or (name.startswith(("tokenizer.", "model.")) and name not in MAY_CHANGE)
        if stays and old[name] != new[name]:
            raise InputError(f"{run.path} was created with {name} = {old[name]!r}, which has to stay: train a new run.")
        if name in DROPOUTS and bool(old[name]) != bool(new[name]):
            raise InputError(
                f"{run.path} was created with {name} = {old[name]!r}, which cannot change from or to 0, since the "
                "random draws are part of its state: 1e-9 drops almost nothing."
            )


def plan(config: Config, report: Callable[[str], Any] = print, origins: Mapping[str, str] | None = None) -> None:
    """Report vocabulary, batches, time and memory of a training, without writing anything but caches."""
    Training.plan(config, report, origins)
