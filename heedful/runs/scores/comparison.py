"""Comparisons of runs, with one row for all that differ only in seed, and significance tests."""

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from heedful.config import DecodeConfig
from heedful.core.errors import InputError
from heedful.core.plugins import find_metric
from heedful.runs.run import Run
from heedful.runs.scores.metrics import MIN_UNITS, bounds, p_value, sample_scores
from heedful.runs.scores.provenance import counts_of, is_comparable, read

MUST_AGREE = ("signatures", "decode", "examples")  # fields that must be equal in all compared scores


class System(NamedTuple):
    """A system that is compared: its name, and for each of its runs the seed, if it has one, and the counts (N, C)."""

    name: str
    seeds: tuple[int, ...]
    counts: Sequence[np.ndarray]


@dataclass(frozen=True)
class Row:
    """The results of one system: runs that differ only in their seed.

    Args:
        name: path of its first run, then " and N more".
        seeds: one per run.
        score: the mean over the runs.
        deviation: standard deviation over the runs, or None for a single one.
        interval: 95 % bootstrap interval over the text; None for too few units.
        difference: from the score of the first system; None for the first system.
        p: p-value of the difference; None for the first system, for too few units, or if samples cannot be paired.
    """

    name: str
    seeds: tuple
    score: float
    deviation: float | None
    interval: tuple | None
    difference: float | None = None
    p: float | None = None


@dataclass(frozen=True)
class Comparison:
    """The rows; `units` counts the sentences or batches scored."""

    metric: str
    data: str
    units: int
    rows: list

    def as_dict(self) -> dict[str, Any]:
        """Return all fields as a dict."""
        return dataclasses.asdict(self)

    def lines(self) -> list[str]:
        """Return the comparison as the lines of a table."""
        digits = find_metric(self.metric).digits
        table = [["run", "seeds", self.metric, "95 %", "difference", "p"]]
        for row in self.rows:
            spread = f" ± {row.deviation:.{digits}f}" if row.deviation is not None else ""
            table.append(
                [
                    row.name,
                    " ".join(map(str, row.seeds)),
                    f"{row.score:.{digits}f}{spread}",
                    f"{row.interval[0]:.{digits}f} to {row.interval[1]:.{digits}f}" if row.interval else "few units",
                    "" if row.difference is None else f"{row.difference:+.{digits}f}",
                    "" if row.p is None else f"{row.p:.3f}",
                ]
            )
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        body = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
        return [f"{self.data}: {self.units:,} units", *body]


def compare(runs: Sequence[Run], metric: str | None = None) -> "Comparison":
    """Compare the newest scores of runs on a text that all of them were scored on.

    All runs share the same samples of the text (paired bootstrap, Koehn 2004); a system's score on a sample is the mean
    over its runs. So p accounts for the sampling of the text, not for the seeds. Losses of different batches (other
    tokens, other lengths) cannot be paired and have no p.

    Args:
        runs: `Run`s.
        metric: name of a metric; None: the default of the task.

    Raises:
        InputError: the runs are not comparable: different tasks, no common text, other decoding settings, ...
    """
    tasks = {run.config.task for run in runs}
    if len(tasks) > 1:
        raise InputError(f"Runs of different tasks cannot be compared: {', '.join(sorted(tasks))}.")
    scores_by_run = _on_common_text(runs)
    default_metrics = runs[0].task.compared_by
    metric = metric or next(
        (name for name in default_metrics if all(name in scores for scores in scores_by_run)), default_metrics[0]
    )
    _require_same_settings(runs, scores_by_run, metric)
    counts_by_run = [_counts(run, scores, metric) for run, scores in zip(runs, scores_by_run, strict=True)]
    by_batch = metric in ("loss", "bits_per_byte")
    if not by_batch and len({len(counts) for counts in counts_by_run}) > 1:
        units_differ = ", ".join(f"{run.path} {len(counts):,}" for run, counts in zip(runs, counts_by_run, strict=True))
        raise InputError(f"The numbers of scored texts differ ({units_differ}): evaluate the runs again.")
    systems = []
    for members in _systems(runs):
        _refuse_copies([runs[i] for i in members])
        more = f" and {len(members) - 1} more" if len(members) > 1 else ""
        seeds = tuple(runs[i].config.train.seed for i in members)
        systems.append(System(f"{runs[members[0]].path}{more}", seeds, [counts_by_run[i] for i in members]))
    rows = rows_of(metric, systems, by_batch)
    return Comparison(metric, scores_by_run[0]["data"], len(counts_by_run[0]), rows)


def rows_of(metric: str, systems: Sequence[System], by_batch: bool = False) -> list[Row]:
    """Return the results of systems, each compared with the first.

    Args:
        metric: name of a metric.
        systems: scored on the same text.
        by_batch: whether the units are batches, which can be paired only if they have the same tokens.
    """
    enough = min(len(counts) for system in systems for counts in system.counts) >= MIN_UNITS
    score_of = find_metric(metric).score
    rows: list[Row] = []
    samples: list[np.ndarray] = []
    for name, seeds, all_counts in systems:
        run_scores = [score_of(counts.sum(0)) for counts in all_counts]
        samples.append(np.mean([sample_scores(metric, counts) for counts in all_counts], 0))
        row = Row(
            name, seeds, statistics.fmean(run_scores),
            statistics.stdev(run_scores) if len(run_scores) > 1 else None, bounds(samples[-1]) if enough else None,
        )  # fmt: skip
        if rows:
            difference = row.score - rows[0].score
            first = systems[0].counts[0]
            paired = enough and (not by_batch or all(_same_pieces(first, counts) for counts in all_counts))
            p = p_value(difference, samples[-1] - samples[0]) if paired else None
            row = dataclasses.replace(row, difference=difference, p=p)
        rows.append(row)
    return rows


def _same_pieces(one, other):
    """Return whether the batches of two losses agree in number and in their token counts."""
    return np.array_equal(one[:, 1], other[:, 1])


def _on_common_text(runs):
    """Return each run's newest scores on the first run's latest common text."""
    by_text = []
    for run in runs:
        fingerprint = run.weights_fingerprint()
        scored: dict[str, Any] = {}
        for scores in read(run):
            if is_comparable(scores) and scores.get("weights_fingerprint") == fingerprint:
                scored.pop(scores["data_fingerprint"], None)  # so the newest is last
                scored[scores["data_fingerprint"]] = scores
        if not scored:
            raise InputError(f"{run.path} has no scores for its current weights: run `heedful evaluate {run.path}`.")
        by_text.append(scored)
    common = [text for text in by_text[0] if all(text in scored for scored in by_text[1:])]
    if not common:
        texts = "; ".join(
            f"{run.path}: {', '.join(scores['data'] for scores in scored.values())}"
            for run, scored in zip(runs, by_text, strict=True)
        )
        raise InputError(f"The runs were not scored on the same text ({texts}).")
    return [scored[common[-1]] for scored in by_text]


def _require_same_settings(runs, scores_by_run, metric):
    scores_by_run = [_with_defaults(scores) for scores in scores_by_run]
    by_token = metric == "loss" or runs[0].task.scored_by_token
    agree = [*MUST_AGREE, *(["tokenizer_fingerprints"] if by_token else [])]
    for run, scores in zip(runs, scores_by_run, strict=True):
        for name in agree:
            one, other = scores_by_run[0].get(name), scores.get(name)
            if name == "signatures" and isinstance(one, dict) and isinstance(other, dict):  # metrics that both have
                one, other = ({key: each[key] for key in one.keys() & other.keys()} for each in (one, other))
            if one != other:
                where = name
                if isinstance(one, dict) and isinstance(other, dict):
                    key = next(key for key in one | other if one.get(key) != other.get(key))
                    where, one, other = f"{name}.{key}", one.get(key), other.get(key)
                if name == "tokenizer_fingerprints":
                    raise InputError(
                        f"{runs[0].path} and {run.path} have different tokenizers; scores are not comparable."
                    )
                raise InputError(
                    f"{runs[0].path} and {run.path} were not scored alike: {where} is {one!r} and {other!r}. "
                    "Evaluate one of them again."
                )


def _with_defaults(scores):
    """Return scores with defaults for decoding settings added since, and with the precision actually used."""
    if not isinstance(scores.get("decode"), dict):
        return scores
    decode = dataclasses.asdict(DecodeConfig()) | scores["decode"]
    if decode["precision"] == "as_trained":
        decode["precision"] = scores.get("precision", "float32")
    return scores | {"decode": decode}


def _counts(run, scores, metric):
    counts = counts_of(run, scores)
    if metric not in counts:
        raise InputError(f"{run.path} was scored by {', '.join(counts)}, not by {metric!r}.")
    units = counts[metric]
    if units.ndim != 2 or units.shape[1] != find_metric(metric).num_counts or not len(units):
        raise InputError(f"{run.path}: the counts of {metric!r} have the wrong shape {units.shape}.")
    return units


def _refuse_copies(runs):
    """Raise `InputError` if two of the runs that differ in seed only have the same weights."""
    seen: dict[str, Run] = {}
    for run in runs:
        other = seen.setdefault(run.weights_fingerprint(), run)
        if other is not run:
            raise InputError(f"{other.path} and {run.path} have the same weights: a copy is not a second training.")


def _systems(runs):
    """Return the indices of runs, grouped by config without name and seed."""
    systems: dict[Any, list[int]] = {}
    for number, run in enumerate(runs):
        config = run.task.completed_from(run.config, run.config)
        train = dataclasses.replace(config.train, seed=0)
        systems.setdefault(dataclasses.replace(config, name="", train=train), []).append(number)
    return list(systems.values())
