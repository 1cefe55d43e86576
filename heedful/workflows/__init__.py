"""From a config and its text to a trained and scored run."""

from pathlib import Path

from heedful import settings
from heedful.errors import InputError
from heedful.run import Run
from heedful.workflows.time_plan import continued_within_minutes
from heedful.workflows.training import Training, require_free

__all__ = ["Training", "default_folder", "plan", "require_free", "resume", "train"]

# What stays as it is when a training is resumed, besides the tokenizer and the model, of which some may change.
MADE_WITH = ("data.corpus", "data.labels", "data.planned_updates", "train.start_from", "train.freeze")
DROPOUTS = ("model.dropout", "model.attention_dropout")
MAY_CHANGE = (*DROPOUTS, "model.max_length")


def default_folder(config):
    """Return where a run goes that was given no folder: runs/NAME."""
    return Path("runs") / config.name


def train(config, path=None, report=print, force=False, origins=None, plan_minutes=True):
    """Train a run from a `Config` and return it.

    Args:
        path: the run folder; runs/NAME by default.
        report: called with each line for the user.
        force: whether a run in the folder may be overwritten.
        origins: where settings came from, by their full names; the run keeps it.
        plan_minutes: whether `train.updates` becomes what fits into `train.minutes`, if the schedule has an end.
    """
    path = path or default_folder(config)
    return Training.create(config, path, report, force, origins, plan_minutes).train()


def resume(path, report=print, config=None, verify=False, origins=None):
    """Continue the training of a run folder, exactly as if it had never stopped; `verify` that first by a replay."""
    run = Run.open(path)
    if config is not None and config != run.config:
        config = config.planned_as(run.config)
        _require_same(run, config)
        config = _with_new_minutes(run, config, report)
        run = Run(path, config, *run.tokenizers())  # kept in the folder when the state has turned out to fit it
    return Training(run, report).train(True, verify, origins)


def _with_new_minutes(run, config, report):
    """Plan the updates again where a training gets other minutes and its schedule has an end."""
    old, new = run.config.train, config.train
    if not new.schedule_ends or not new.minutes or new.minutes == old.minutes or new.updates != old.updates:
        return config
    log = run.read_log()
    if not log:
        return config
    config = continued_within_minutes(config, log)
    report(f"planned {config.train.updates:,} updates for {new.minutes:g} minutes (before: {old.updates:,})")
    return config


def _require_same(run, config):
    """Refuse a config with other settings of what a run was made with: its vocabulary, its model, its classes."""
    run.of_task(config.task)
    old, new = settings.flat(run.config.planned_as(run.config)), settings.flat(config)
    for name in old:
        stays = name in MADE_WITH or (name.startswith(("tokenizer.", "model.")) and name not in MAY_CHANGE)
        if stays and old[name] != new[name]:
            raise InputError(f"{run.path} was made with {name} = {old[name]!r}, which has to stay: train a new run.")
        if name in DROPOUTS and bool(old[name]) != bool(new[name]):
            raise InputError(
                f"{run.path} was made with {name} = {old[name]!r}, which cannot change from or to 0, for the draws are "
                "part of its state: 1e-9 drops next to nothing."
            )


def plan(config, report=print):
    """Report vocabulary, batches, time and memory of a training, without writing anything but caches."""
    Training.plan(config, report)
