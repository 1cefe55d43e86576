"""What a tuning has found: the winning recipe with reasons, a table and a picture of the trials."""

import dataclasses
import math
import statistics
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heedful.config import Config, settings
from heedful.config.train import SCHEDULES_WITH_END
from heedful.core.storage import write_text
from heedful.inspection.style import COLORS, panels, save, styled
from heedful.tasks.suggestions import intervals
from heedful.workflows.tuning.space import Settings, Space, choice_of
from heedful.workflows.tuning.state import OWN, Tuning
from heedful.workflows.tuning.trials import SCHEDULE_FREE

RECIPE, TABLE, PICTURE = "best.toml", "trials.tsv", "trials.png"
LINE = 100  # characters of a comment
MIN_ERRORS = 3  # standard errors by which the best and the worst mean differ if a setting matters;
MIN_SEED_DIFFERENCES = 2  # and differences of two seeds


@dataclasses.dataclass(frozen=True)
class Effect:
    """What the trials say about a question.

    Args:
        question: such as `depth`.
        means: by choice as text, the mean score of the first round and the number of trials.
        chosen: the choice of the best trial; empty if it has the recipe's own.
        matters: whether the best and the worst mean differ by more than chance.
    """

    question: str
    means: Mapping[str, tuple[float, int]]
    chosen: str
    matters: bool

    def __str__(self) -> str:
        shown = ", ".join(f"{name}: {mean:.4g} ({count})" for name, (mean, count) in self.means.items())
        return f"{shown}{'' if self.matters else '; within chance'}"


def effects(tuning: Tuning, space: Space) -> list[Effect]:
    """Return what the first round says about each question of the space that was tried."""
    winner, noise = tuning.trials[tuning.best()], tuning.second_seed_difference()
    results = []
    for question, choices in space.items():
        scores: dict[str, list[float]] = {}
        for trial in tuning.trials[OWN:]:
            choice = choice_of(trial.settings, choices) if question != "rate" else _rate_of(trial.settings)
            if choice is not None and trial.scores:
                scores.setdefault(described(choice), []).append(trial.scores[0])
        if not scores:
            continue
        means = {name: (statistics.fmean(each), len(each)) for name, each in sorted(scores.items())}
        spread = max(mean for mean, _ in means.values()) - min(mean for mean, _ in means.values())
        # A mean of n trials varies less than one of them, which varies by its other settings too.
        within = [value for each in scores.values() for value in (v - statistics.fmean(each) for v in each)]
        error = math.sqrt(sum(value**2 for value in within) / max(1, len(within) - len(means)))
        error *= math.sqrt(2 / min(count for _, count in means.values()))
        own = choice_of(winner.settings, choices) if question != "rate" else _rate_of(winner.settings)
        chance = max(MIN_ERRORS * error, MIN_SEED_DIFFERENCES * (noise or 0.0))
        results.append(Effect(question, means, described(own) if own else "", spread > chance))
    return results


def _rate_of(values):
    return {"train.learning_rate": values["train.learning_rate"]} if "train.learning_rate" in values else None


def described(choice: Settings) -> str:
    """Return a choice as text, by the values that tell it from others: `256`, `6-2`, `sim_cut`."""
    if "model.encoder_layers" in choice:
        return f"{choice['model.encoder_layers']}-{choice['model.decoder_layers']}"
    return str(next(iter(choice.values())))


def write_outcome(tuning: Tuning, config: Config, table: Mapping[str, Any], space: Space) -> list[Path]:
    """Write recipe, table and picture; return their paths.

    Args:
        tuning: with at least one finished trial.
        config: of the recipe that was tuned.
        table: its keys.
        space: the choices.
    """
    paths = [tuning.folder / name for name in (RECIPE, TABLE, PICTURE)]
    write_text(paths[0], winning_recipe(tuning, config, table, space))
    write_text(paths[1], _table(tuning))
    _draw(tuning, paths[2])
    return paths


def winning_recipe(tuning: Tuning, config: Config, table: Mapping[str, Any], space: Space) -> str:
    """Return the recipe of the best trial as TOML, with a comment that gives the reason for each tuned value."""
    index = tuning.best()
    trial, last = tuning.trials[index], tuning.rounds[-1]
    reached = tuning.rounds[len(trial.scores) - 1]  # the last one, unless the tuning was interrupted
    updates = last.updates or round(trial.updates[-1] * last.minutes / reached.minutes)
    reasons = {effect.question: effect for effect in effects(tuning, space)}
    of_setting = {name: question for question, choices in space.items() for name in choices[0]}
    of_setting |= {"train.learning_rate": of_setting.pop("rate", "rate")}
    chosen_values = {} if index < OWN else tuning.chosen_values()
    values = settings.flat(config) | chosen_values | trial.settings
    length: dict[str, Any] = {"train.updates": last.updates}
    if last.minutes:
        length = {"train.minutes": last.minutes, "train.updates": max(values["train.updates"], 2 * updates)}
    named = settings.names_in(table)
    length |= {name: value for name, value in intervals(updates).items() if name not in named}
    schedule_free = trial.settings.get("train.optimizer", config.train.optimizer) == SCHEDULE_FREE
    ends = {} if schedule_free or values["train.schedule"] in SCHEDULES_WITH_END else {"train.schedule": "cosine"}
    keys = {*named, *chosen_values, *trial.settings, *length, *ends}
    keys -= {"train.epochs", "train.minutes_of"} if last.minutes else {"train.minutes", "train.minutes_of"}
    values |= length | ends
    comments = {name: reason for name, (value, reason) in tuning.chosen.items() if values[name] == value}
    for name in sorted(keys, key=lambda name: (settings.sections().index(name.partition(".")[0]), name)):
        question = of_setting.get(name) if name in trial.settings else None
        if question in reasons:  # with several settings, it is explained at the first one
            comments[name] = f"{question}: {reasons.pop(question)}"
    values |= {"name": f"{config.name}-tuned"}
    written = {name: values[name] for name in ("name", "task", *sorted(keys))}
    return settings.recipe_toml(written, comments, textwrap.wrap(_summary(tuning, index), LINE))


def _summary(tuning, index):
    """Return what the best trial reached, and what the comments of its recipe mean."""
    trial, first, noise = tuning.trials[index], tuning.rounds[0], tuning.second_seed_difference()
    reached = tuning.rounds[len(trial.scores) - 1]
    minutes = f" ({reached})" if reached.minutes else ""
    seeds = "" if noise is None else f" Two seeds of the original recipe differ by {noise:.2g}."
    return (
        f"Found by heedful tune: trial {index} of {len(tuning.trials)}, {reached.metric} {trial.scores[-1]:.4g} on the "
        f"validation text after {trial.updates[-1]:,} updates{minutes} at a constant rate. Comments give the mean "
        f"{first.metric} after the first round ({first}) by value, with the number of trials.{seeds}"
    )


def _table(tuning):
    """Return all trials, the best first, as tab-separated values."""
    names = sorted({name for trial in tuning.trials for name in trial.settings})
    head = ["trial", *(f"{each.metric}_{n}" for n, each in enumerate(tuning.rounds, 1)),
            *(f"updates_{n + 1}" for n in range(len(tuning.rounds))), *names, "failure"]  # fmt: skip
    ranks = [tuning.ranked(number) for number in range(len(tuning.rounds))]  # a round has those of the next one

    def rank(index):
        rounds = len(tuning.trials[index].scores)
        return -rounds, ranks[rounds - 1].index(index) if rounds else index

    order = sorted(range(len(tuning.trials)), key=rank)
    rows = [head]
    for index in order:
        trial = tuning.trials[index]
        rounds = range(len(tuning.rounds))
        rows.append([
            str(index), *(f"{trial.scores[n]:.6g}" if n < len(trial.scores) else "" for n in rounds),
            *(str(trial.updates[n]) if n < len(trial.updates) else "" for n in rounds),
            *(str(trial.settings.get(name, "")) for name in names), " ".join(trial.failure.split()),
        ])  # fmt: skip
    return "".join("\t".join(row) + "\n" for row in rows)


def _draw(tuning, path):
    """Draw the score of each trial over the updates of its rounds; each metric has a panel."""
    best, reached = tuning.best(), [number for number in range(len(tuning.rounds)) if tuning.ranked(number)]
    metrics = list(dict.fromkeys(tuning.rounds[number].metric for number in reached))
    with styled():
        figure, axes = panels(len(metrics), 2, (8, 5))
        for axis, metric in zip(axes, metrics, strict=True):
            numbers = [number for number in reached if tuning.rounds[number].metric == metric]
            for index, trial in enumerate(tuning.trials):
                own, won = index < OWN, index == best
                color = COLORS[1] if won else COLORS[0] if own else "0.7"
                label = "best trial" if won else "the recipe, two seeds" if index == 0 else None
                updates, scores = (
                    [each[n] for n in numbers if n < len(each)] for each in (trial.updates, trial.scores)
                )
                style = {"marker": "o", "color": color, "zorder": 2 if won or own else 1}
                axis.plot(updates, scores, label=label if updates else None, **style)
            label = f"{metric.replace('_', ' ')}, validation text"
            axis.set(xlabel="update", ylabel=label, xscale="log", title="Trials")
            axis.grid(visible=True)
            axis.legend()
        save(figure, path)
