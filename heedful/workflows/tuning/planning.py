"""The plan of a tuning: how many trials, how long they train, and what they have in common."""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from heedful.config import Config, read_recipe, settings
from heedful.config.data import BUILT_IN
from heedful.config.idle_settings import refuse_idle
from heedful.core.errors import InputError
from heedful.core.plugins import find_task
from heedful.workflows.recipe_choice import choose_rest
from heedful.workflows.tuning.space import draw_trials, search_space
from heedful.workflows.tuning.state import RECIPE, REDUCTION, Chosen, Tuning, recipe_text, with_peak_rate
from heedful.workflows.tuning.trials import Round, Trial, metrics_of, settings_of_trials

ROUNDS = 3
FULL_TRAININGS = 6  # how many fit into the minutes, unless the recipe has train.minutes
OVERHEAD = 1.0  # minutes for starting, compiling and scoring a trial, until trials have shown how long that takes
MIN_TRIALS, MAX_TRIALS = 4, 200
COUNTED_LINES = 200_000  # lines of the training text that are counted at most


def begin_tuning(
    recipe: Path, overrides: Sequence[str], folder: Path | None, minutes: float, count: int, seed: int,
    report: Callable[[str], Any],
) -> Tuning:  # fmt: skip
    """Plan a tuning, and save it and its recipe in its folder.

    Args:
        recipe: the file of the recipe.
        overrides: `--section.key value` arguments.
        folder: where everything is kept; None: `runs/NAME-tuning`.
        minutes: for all trials together; 0: `count` says how many.
        count: see `plan_tuning`.
        seed: of the draws.
        report: called with each line for the user.

    Raises:
        InputError: the folder is not empty; or see `plan_tuning`.
    """
    table, asked, given = read_recipe(recipe), settings.of_recipe(recipe, overrides), settings.given_names(overrides)
    config = with_peak_rate(asked)
    refuse_idle(asked, [*given, *settings.changed(asked, config)])
    folder = folder or Path("runs") / f"{config.name}-tuning"
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty. Continue a tuning with --resume {folder}, or choose another --run.")
    chosen = _chosen_for_text(asked, config, [*settings.names_in(table), *given], minutes, report)
    tuning = plan_tuning(config, folder, minutes, count, lines_of(config), seed, chosen)
    folder.mkdir(parents=True, exist_ok=True)
    names = [*given, *settings.changed(asked, config)]
    (folder / RECIPE).write_text(recipe_text(config, table, names), encoding="utf-8")
    tuning.save()
    metrics = ", in the last round ".join(dict.fromkeys(each.metric for each in tuning.rounds))
    report(f"{folder}: {len(tuning.trials)} trials, compared by {metrics} on the validation text")
    return tuning


def _chosen_for_text(asked: Config, config: Config, names: Iterable[str], minutes: float, report: Any) -> Chosen:
    """Return the settings that a recipe leaves open, chosen for its text; none where the loss per token decides.

    Args:
        asked: the config of the recipe.
        config: the same with its peak learning rate.
        names: of the settings that the recipe has.
        minutes: of the tuning.
        report: called with each line for the user.
    """
    if "loss" in metrics_of(config):  # losses with other vocabularies or lengths of texts cannot be compared
        return {}
    fixed = {*names}
    if fixed & {"train.learning_rate", "train.warmup_updates"}:  # these made the peak
        fixed |= {*settings.changed(asked, config)}
    return choose_rest(config, fixed, plan_rounds(config, minutes)[-1].length, report)


def plan_rounds(config: Config, minutes: float) -> list[Round]:
    """Return the rounds of a tuning: in minutes if all trials together have some `minutes`, otherwise in updates."""
    metric, last_metric = metrics_of(config)
    full = (config.train.minutes or minutes / FULL_TRAININGS) if minutes else 0.0
    updates = 0 if minutes else config.train.updates
    rounds = []
    for number in reversed(range(ROUNDS)):
        part = REDUCTION**number
        rounds.append(Round(full / part, max(1, updates // part) if updates else 0, metric if number else last_metric))
    return rounds


def plan_tuning(
    config: Config, folder: Path, minutes: float, count: int, lines: int, seed: int = 1, chosen: Chosen | None = None
) -> Tuning:
    """Return a new search.

    Args:
        config: of the recipe.
        folder: where everything is kept.
        minutes: for all trials together; 0: rounds are counted in updates.
        count: number of trials if `minutes` is 0. Those of the last round train for `train.updates`.
        lines: number of lines of the training text.
        seed: of the draws.
        chosen: settings that the recipe leaves open, see `Tuning`.

    Raises:
        InputError: there is time for too few trials, `count` is too small, or the text is built in.
    """
    rounds = plan_rounds(config, minutes)
    if config.data.corpus in BUILT_IN:
        raise InputError(f"The text {config.data.corpus!r} is built in: tuning is for text of your own (data.train).")
    if minutes:
        count = trials_within(minutes, rounds)
        if count < MIN_TRIALS:
            raise InputError(
                f"{minutes:g} minutes are too few for trials of up to {rounds[-1]}: give more (--minutes), or "
                "shorter trainings (--train.minutes)."
            )
    elif config.train.epochs:
        raise InputError("--trials counts updates: set train.updates instead of train.epochs, or tune for --minutes.")
    if count < MIN_TRIALS:
        raise InputError(f"Tuning compares at least {MIN_TRIALS} trials.")
    tuning = Tuning(folder, rounds, [], minutes, chosen or {})
    complete, common = tuning.complete(config), settings_of_trials(tuning.chosen)
    trials = [Trial({}), Trial({"train.seed": config.train.seed + 1}), *([Trial(common)] if common else [])]
    drawn = draw_trials(search_space(complete, lines), count - len(trials), seed, complete)
    tuning.trials = [*trials, *(Trial(common | each) for each in drawn)]
    return tuning


def trials_within(minutes: float, rounds: Sequence[Round], overhead: float = OVERHEAD) -> int:
    """Return how many trials fit into some minutes; a round takes `overhead` minutes in addition to the training."""
    for count in range(MAX_TRIALS, 0, -1):
        needed, trials, before = 0.0, count, 0.0
        for number, each in enumerate(rounds):
            trials = count if number == 0 else max(2, math.ceil(trials / REDUCTION))
            needed += trials * (each.minutes - before + overhead)
            before = each.minutes
        if needed <= minutes:
            return count
    return 0


def lines_of(config: Config) -> int:
    """Return the number of lines of a config's training text, up to `COUNTED_LINES`."""
    corpus = find_task(config.task).find_corpora(config)["train"]
    return sum(1 for _ in itertools.islice(corpus, COUNTED_LINES))
