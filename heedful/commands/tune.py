"""heedful tune: find the settings that give the best model of a text in a given time."""

import argparse
import shutil
import signal
from pathlib import Path

from heedful.config import settings
from heedful.config.recipes import find_recipe, recipe_names
from heedful.core.errors import InputError

TAKES_SETTINGS = True
OF_PAPER = ["train.schedule", "train.learning_rate"]  # settings that replace the paper's schedule


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
    from heedful.workflows.tuning.halving import lines_of, tune
    from heedful.workflows.tuning.outcome import write_outcome
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
    """Return a new tuning, with its recipe in its folder."""
    from heedful.commands.terminal import report_progress
    from heedful.config import read_recipe
    from heedful.config.idle_settings import refuse_idle
    from heedful.workflows.recipe_choice import choose_rest
    from heedful.workflows.tuning.halving import lines_of, plan_rounds, plan_tuning
    from heedful.workflows.tuning.state import RECIPE, recipe_text, with_peak_rate
    from heedful.workflows.tuning.trials import metric_of

    if bool(options.minutes) == bool(options.trials):
        raise InputError("Say how long to search: --minutes, or --trials.")
    path = find_recipe(options.recipe)
    asked, given = settings.of_recipe(path, options.overrides), settings.given_names(options.overrides)
    config = with_peak_rate(asked)
    given = [*given, *(OF_PAPER if config != asked else [])]
    refuse_idle(asked, given)
    folder = options.run or Path("runs") / f"{config.name}-tuning"
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty. Continue a tuning with --resume {folder}, or choose another --run.")
    seed = 1 if options.seed is None else options.seed
    minutes, table = options.minutes or 0, read_recipe(path)
    chosen = {}
    if metric_of(config) != "loss":  # which depends on the vocabulary and on the length of the texts
        length = plan_rounds(config, minutes)[-1].settings
        names = [*settings.names_in(table), *settings.given_names(options.overrides)]
        if config != asked and {"train.learning_rate", "train.warmup_updates"} & {*names}:
            names += OF_PAPER  # they made the peak
        chosen = choose_rest(config, names, length, report_progress)
    tuning = plan_tuning(config, folder, minutes, options.trials or 0, lines_of(config), seed, chosen)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RECIPE).write_text(recipe_text(config, table, given), encoding="utf-8")
    tuning.save()
    report_progress(f"{folder}: {len(tuning.trials)} trials, compared by {tuning.metric} on the validation text")
    return tuning
