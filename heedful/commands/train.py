"""heedful train: train a run on text or from a recipe, or resume one."""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from heedful.config import settings
from heedful.config.recipes import find_recipe, recipe_names
from heedful.core.errors import InputError
from heedful.core.plugins import task_names

TAKES_SETTINGS = True
LATER = 60  # seconds after train.stall_minutes until a process without heartbeats is given up
WEEK = 7 * 24 * 3600  # seconds for train.stall_minutes = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("recipe", nargs="?", help=f"a TOML file, or one of {', '.join(recipe_names())}")
    parser.add_argument("--run", type=Path, help="run folder (default: runs/NAME)")
    text = parser.add_argument_group("text instead of a recipe: settings are chosen for it, each with a reason")
    text.add_argument(
        "--text", nargs="+", metavar="FILE",
        help="training text: source and target file, or a file of pairs; see data.train for other tasks",
    )  # fmt: skip
    text.add_argument("--valid", nargs="+", metavar="FILE", help="validation text, in the same form")
    text.add_argument("--test", nargs="+", metavar="FILE", help="test text, in the same form, scored at the end")
    text.add_argument("--task", help="what the model is for: translate (default), classify or generate")
    text.add_argument(
        "--write-recipe", type=Path, metavar="FILE", help="write the settings as a recipe, with their reasons, and stop"
    )
    parser.add_argument("--minutes", type=float, help="minutes to train: train.minutes (with --text, 15 by default)")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="continue the run in this folder, exactly")
    parser.add_argument(
        "--seeds", nargs="+", type=int, metavar="SEED", help="train once with each seed, into RUN-seedN, and compare"
    )
    parser.add_argument(
        "--verify", action="store_true", help="with --resume: repeat the last updates first, and compare bit for bit"
    )
    parser.add_argument("--force", action="store_true", help="overwrite a run folder that holds a run")
    together = parser.add_mutually_exclusive_group()
    together.add_argument(
        "--processes", type=int, metavar="N", help="train in N processes of this machine, each with its own cores"
    )
    together.add_argument(
        "--join", action="store_true",
        help="train together with the processes that torchrun, SLURM, Open MPI or Kubernetes has started with this one",
    )  # fmt: skip
    parser.add_argument("--plan", action="store_true", help="print vocabulary, batch shapes, time and memory, and stop")
    listing = "settings (also keys of a recipe): --SECTION.KEY VALUE\n" + "\n".join(settings.describe())
    parser.epilog = f"{listing}\n\ntasks (the key `task` of a recipe): {', '.join(task_names())}"


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    if [bool(options.recipe), bool(options.resume), bool(options.text)].count(True) != 1:
        raise InputError("Name a recipe to train, or text after --text, or a run folder after --resume.")
    if not options.text and (options.valid or options.test or options.task or options.write_recipe):
        raise InputError("--valid, --test, --task and --write-recipe go with --text.")
    if options.text and (options.processes is not None or options.join):
        raise InputError(
            "--text chooses settings by the speed of one process: for several, write them with --write-recipe first."
        )
    if options.minutes is not None:
        if "train.minutes" in settings.given_names(options.overrides):
            raise InputError("--minutes is train.minutes: give one of them.")
        options.overrides += ["--train.minutes", str(options.minutes)]
    if options.seeds and (options.resume or options.plan or len(set(options.seeds)) < len(options.seeds)):
        raise InputError("--seeds takes different seeds, and goes with neither --resume nor --plan.")
    if options.verify and not options.resume:
        raise InputError("--verify repeats what a run has done: it goes with --resume.")
    if options.processes is not None:
        return _launch(options)
    work = _resuming(options) if options.resume else _training(options)
    return _join(options, *work) if options.join else work[1]()


def _training(options):
    """Return the config to train, and a function that trains it and returns the exit code."""
    from heedful import workflows
    from heedful.commands.terminal import report_progress
    from heedful.config.idle_settings import refuse_idle

    given = settings.given_names(options.overrides)
    if options.plan and (options.run or options.force):
        raise InputError("--plan writes no run: leave out --run and --force.")
    if options.write_recipe and (options.run or options.force or options.plan or options.seeds):
        raise InputError("--write-recipe writes no run: leave out --run, --force, --plan and --seeds.")
    if options.text:
        choice = _choose(options)
        config, origins = choice.config, choice.origins()
    else:
        recipe = find_recipe(options.recipe)
        config, origins = settings.of_recipe(recipe, options.overrides), settings.origins(recipe, options.overrides)
    refuse_idle(config, given)
    if options.seeds and "train.seed" in given:
        raise InputError("--seeds sets train.seed: leave out --train.seed.")
    if options.write_recipe:
        return config, lambda: _write_recipe(options.write_recipe, choice)
    if options.plan:
        return config, lambda: workflows.plan(config, report_progress, origins)
    folder = options.run or workflows.default_folder(config)
    if options.seeds:
        return config, lambda: _train_seeds(options, config, origins, folder)
    return config, lambda: stoppable(
        lambda: workflows.train(config, folder, report_progress, options.force, origins), folder
    )


def _choose(options):
    """Return the recipe that is chosen for a text; report the reasons."""
    from heedful.commands.terminal import report_progress
    from heedful.workflows import require_free
    from heedful.workflows.recipe_choice import choose_recipe

    if options.run and not options.seeds:
        require_free(options.run, options.force)  # before the text is read
    choice = choose_recipe(
        options.text, options.valid or (), options.test or (), options.task or "translate", options.overrides,
        report_progress,
    )  # fmt: skip
    for line in choice.lines():
        report_progress(line)
    return choice


def _write_recipe(path, choice):
    """Write the chosen recipe to a file; return 0."""
    from heedful.commands.terminal import report_progress
    from heedful.core.output import write_output

    try:
        content = choice.toml().encode()
    except UnicodeEncodeError as error:
        raise InputError("A recipe cannot name a file whose name is not UTF-8: rename it.") from error
    write_output(path, content)
    report_progress(f"{path}: train with heedful train {path}, or find better settings with heedful tune {path}.")
    return 0


def _launch(options):
    """Start this command in several processes."""
    from heedful.core.distributed.launch import launch

    if options.processes < 1:
        raise InputError("--processes takes a number from 1.")
    if options.plan:
        raise InputError("--plan measures one process: leave out --processes.")
    name, *rest = _without_processes(options.arguments)
    command = [sys.executable, "-m", "heedful", name, "--join", *rest]
    return launch([command] * options.processes, f"{_resume_command(options)} --processes {options.processes}")


def _resume_command(options):
    """Return the command that continues the training."""
    path = options.resume or options.run
    if path is None:
        from heedful import workflows

        path = workflows.default_folder(settings.of_recipe(find_recipe(options.recipe), options.overrides))
    return f"heedful train --resume {path}{'-seedN' if options.seeds else ''}"


def _without_processes(arguments):
    """Return the arguments of the command line without --processes N."""
    kept, rest = [], iter(arguments)
    for argument in rest:
        name, given, _ = argument.partition("=")
        if name.startswith("--pr") and "--processes".startswith(name):  # argparse accepts abbreviations
            if not given:
                next(rest)
        else:
            kept.append(argument)
    return kept


def _join(options, config, lead):
    """Train together with the processes that a launcher has started."""
    from heedful import backend
    from heedful.core.distributed.launched_process import launched_process
    from heedful.core.distributed.parent import has_parent
    from heedful.core.progress import note
    from heedful.workflows.processes import train_together

    process = launched_process(os.environ)
    option = f"--processes {process.process_count}" if has_parent() else "--join"
    stall = config.train.stall_minutes
    heartbeat = round(60 * stall) + LATER if stall else WEEK
    backend.join(
        process.address, process.process_count, process.process_index, process.local_device_ids, option, heartbeat
    )
    if not backend.process_index():
        note(f"joined {backend.process_count()} processes ({process.launcher})")
    asked = settings.flat(config) | {"--resume": str(options.resume or "")}
    return train_together(asked, lead, f"{_resume_command(options)} {option}")


def stoppable(work: Callable[[], Any], folder: Path, resumes: bool = False) -> int:
    """Call `work`, which trains in a folder; return 0, or after a signal the exit code that shells expect.

    `resumes`: whether it continues the run in that folder; otherwise it replaces that run.
    """
    from heedful.commands.terminal import termination_interrupts
    from heedful.core.progress import note
    from heedful.runs.checkpoint_files import CheckpointFiles
    from heedful.runs.run import CONFIG
    from heedful.training.signals import Interrupted

    replaced = _identity(folder / CONFIG)
    with termination_interrupts() as received:  # during updates `Signals` saves the state first
        try:
            work()
        except Interrupted as stop:
            note(f"heedful: {stop}")
            return 128 + stop.signal_number
        except KeyboardInterrupt:
            if replaced and not resumes and _identity(folder / CONFIG) == replaced:
                note(f"heedful: stopped at once; the run in {folder} is as it was")
                return 128 + (received or [signal.SIGINT])[0]
            last = CheckpointFiles(folder).paths()[-1:]
            kept = f"{last[0]} is kept" if last else "no update is finished yet"
            advice = f". Continue with: heedful train --resume {folder}" if (folder / CONFIG).is_file() else ""
            note(f"heedful: stopped at once; {kept}{advice}")
            return 128 + (received or [signal.SIGINT])[0]
    return 0


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what differs for another file in the place of a file; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _resuming(options):
    """Return the config to go on with, and a function that resumes the run and returns the exit code."""
    from heedful import workflows
    from heedful.commands.terminal import report_progress
    from heedful.config.idle_settings import refuse_idle_on_resuming
    from heedful.runs.run import Run

    if options.plan or options.run or options.force:
        raise InputError("--resume continues in the folder that it names: with neither --plan, --run nor --force.")
    if options.verify and options.overrides:
        raise InputError("--verify uses the settings that the run has: change none in the same call.")
    run = Run.open(options.resume)
    config = settings.override(run.config, options.overrides)
    refuse_idle_on_resuming(config, settings.given_names(options.overrides), run.checkpoints.last_update())
    origins = dict.fromkeys(settings.origins(None, options.overrides), "command line, on resuming")
    return config, lambda: stoppable(
        lambda: workflows.resume(options.resume, report_progress, config, options.verify, origins), options.resume,
        resumes=True,
    )  # fmt: skip


def _train_seeds(options, config, origins, folder):
    """Train once with each seed, into a folder with the seed as suffix, and compare."""
    from heedful import workflows
    from heedful.commands.terminal import report_progress
    from heedful.runs.run import Run
    from heedful.runs.scores.comparison import compare

    folder = folder.resolve() if folder.name in ("", "..") else folder
    if not folder.name:
        raise InputError(f"--seeds trains into FOLDER-seedN, and {folder} has no name: choose another --run.")
    folders = [folder.with_name(f"{folder.name}-seed{seed}") for seed in options.seeds]
    if not config.train.score:
        raise InputError("--seeds compares the scores of the trainings, and train.score = false computes none.")
    for seed, place in zip(options.seeds, folders, strict=True):  # check all before the first training
        _seeded(config, seed)  # raises an error if the seed is not valid
        workflows.require_free(place, options.force)
    for seed, place in zip(options.seeds, folders, strict=True):
        seeded, first = _seeded(config, seed), place == folders[0]
        report_progress(f"seed {seed}: {place}")
        own = origins | {"train.seed": "command line, --seeds"}
        if code := stoppable(lambda: workflows.train(seeded, place, report_progress, options.force, own, first), place):  # noqa: B023
            return code
        config = Run.open(place).config  # all seeds use what the first training has measured
    for line in compare([Run.open(place) for place in folders]).lines():
        report_progress(line)
    return 0


def _seeded(config, seed):
    return settings.override(config, ["--train.seed", str(seed)])
