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
        help="number of trials, instead of --minutes; their length is counted in updates, so that on one machine the "
        "result is always the same",
    )  # fmt: skip
    parser.add_argument("--run", type=Path, metavar="FOLDER", help="folder of the trials (default: runs/NAME-tuning)")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="continue a tuning that was stopped")
    parser.add_argument("--seed", type=int, help="seed of the draws (default: 1)")
    parser.epilog = (
        "The first two trials have the settings of the recipe, with two seeds. For translation and classification, the "
        "third one has those that heedful train --text would choose where the recipe has none. The others vary width, "
        "depth, vocabulary, dropout, label smoothing, batch, learning rate, optimizer and consistency. All trials "
        "train for a ninth of the full length, the best third of them for a third of it, and the best third of those "
        "to its end. The full length is --train.minutes (default: that of the recipe, or a sixth of --minutes), or "
        "with --trials train.updates. The validation text decides; the test text is never scored. The folder then has "
        "best.toml, the winning recipe, and trials.tsv and trials.png with all trials."
    )


def run(options: argparse.Namespace) -> int:
    """Run the command; return 0, or 128 + N after signal N."""
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
    planning = (options.minutes, options.trials, options.run, options.overrides, options.seed is not None)
    if options.resume and any(planning):
        raise InputError("--resume continues a tuning as it was planned: leave out the other arguments.")
    tuning = Tuning.load(options.resume) if options.resume else _begun(options)
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
    if code and not any(trial.scores for trial in tuning.trials):
        return code
    for path in write_outcome(tuning, config, table, search_space(tuning.complete(config), lines_of(config))):
        report_progress(str(path))
    if not code:
        report_progress(f"Train with it: heedful train {tuning.folder / 'best.toml'}")
    return code


def _begun(options):
    """Return a new tuning, which is saved in its folder."""
    from heedful.commands.terminal import report_progress
    from heedful.workflows.tuning.planning import begin_tuning

    if bool(options.minutes) == bool(options.trials):
        raise InputError("Say how long to search: --minutes, or --trials.")
    return begin_tuning(
        find_recipe(options.recipe), options.overrides, options.run, options.minutes or 0, options.trials or 0,
        1 if options.seed is None else options.seed, report_progress,
    )  # fmt: skip
