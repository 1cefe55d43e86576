"""heedful tune: find the settings that give the best model of a text in a given time."""

import argparse
import shutil
import signal
from pathlib import Path

from heedful.config.recipes import find_recipe, recipe_names
from heedful.core.errors import InputError

TAKES_SETTINGS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("recipe", nargs="?", help=f"a TOML file, or one of {', '.join(recipe_names())}")
    parser.add_argument("--minutes", type=float, help="minutes for all trials together")
    parser.add_argument(
        "--trials", type=int, metavar="N",
        help="instead of --minutes: N trials whose length is counted in updates, up to train.updates; on one machine "
        "the result is always the same",
    )  # fmt: skip
    parser.add_argument("--run", type=Path, metavar="FOLDER", help="folder of the trials (default: runs/NAME-tuning)")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="continue a tuning that was stopped")
    parser.add_argument("--seed", type=int, help="seed of the draws (default: 1)")
    parser.epilog = (
        "Two trials have the settings of the recipe. The others have those that heedful train --text chooses where the "
        "recipe has none (translation, classification), and differ in width, depth, vocabulary, dropout, smoothing, "
        "batch, learning rate, optimizer and consistency. All train for a ninth of --train.minutes (default: a sixth "
        "of --minutes), a third of them for a third of it, and a third of those for all of it. The validation text "
        "decides; the test text is never read. "
        "best.toml in the folder is the winning recipe, trials.tsv and trials.png show all trials."
    )


def run(options: argparse.Namespace) -> int:
    """Run the command; return 0, or after a signal the exit code that shells expect."""
    from heedful.commands.terminal import report_progress, termination_interrupts
    from heedful.config import Config, read_recipe
    from heedful.workflows.tuning.halving import tune
    from heedful.workflows.tuning.outcome import write_outcome
    from heedful.workflows.tuning.planning import lines_of
    from heedful.workflows.tuning.space import search_space
    from heedful.workflows.tuning.state import RECIPE, Tuning
    from heedful.workflows.tuning.trials import RefusedRecipe

    if bool(options.recipe) == bool(options.resume):
        raise InputError("Name a recipe to tune, or a folder after --resume.")
    planned = (options.minutes, options.trials, options.run, options.overrides, options.seed is not None)
    if options.resume and any(planned):
        raise InputError("--resume continues a tuning as it was planned: leave out the other arguments.")
    tuning = Tuning.load(options.resume) if options.resume else _planned(options)
    recipe = tuning.folder / RECIPE
    config, table = Config.from_toml(recipe), read_recipe(recipe)

    code = 0
    with termination_interrupts() as received:
        try:
            tune(tuning, recipe, config, report_progress)
        except RefusedRecipe:
            if not options.resume and not any(trial.scores for trial in tuning.trials):
                shutil.rmtree(tuning.folder)  # a corrected recipe can be tuned there
            raise
        except KeyboardInterrupt:
            code = 128 + (received or [signal.SIGINT])[0]
            report_progress(f"Stopped; the trials are kept. Continue with: heedful tune --resume {tuning.folder}")
    if not any(trial.scores for trial in tuning.trials):
        return code or 1
    for path in write_outcome(tuning, config, table, search_space(tuning.complete(config), lines_of(config))):
        report_progress(str(path))
    if not code:
        report_progress(f"Train with it: heedful train {tuning.folder / 'best.toml'}")
    return code


def _planned(options):
    """Return a new tuning."""
    from heedful.commands.terminal import report_progress
    from heedful.workflows.tuning.planning import begin_tuning

    if bool(options.minutes) == bool(options.trials):
        raise InputError("Say how long to search: --minutes, or --trials.")
    return begin_tuning(
        find_recipe(options.recipe), options.overrides, options.run, options.minutes or 0, options.trials or 0,
        1 if options.seed is None else options.seed, report_progress,
    )  # fmt: skip
