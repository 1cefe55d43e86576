"""Further metrics of translations that are scored already: by name, or by a program of its own such as COMET."""

import json
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from heedful.core.errors import InputError
from heedful.core.output import write_output
from heedful.core.plugins import EXTERNAL, find_metric
from heedful.core.storage import locked, plain_file, read_checked, with_checksum, write_atomically, write_text
from heedful.data.text_files import one_line
from heedful.runs.run import Run
from heedful.runs.scores.metrics import interval, unit_scores
from heedful.runs.scores.provenance import OUTPUTS, SCORES, read

Rows = Sequence[Sequence[str]]  # source, reference, further references


def further_counts(
    rows: Rows, translations: Sequence[str], names: Sequence[str], commands: Mapping[str, str], lowercase: bool
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return the counts (N, C) of metrics by name, and their signatures.

    Args:
        rows: source and references of each translation.
        translations: what the model wrote.
        names: of metrics that `evaluate` does not compute by itself, such as `ter`.
        commands: programs by the name of their metric, see `command_scores`.
        lowercase: whether to ignore case.

    Raises:
        InputError: a name is unknown or not a metric of translations; a program fails.
    """
    references, more = [row[1] for row in rows], [tuple(row[2:]) for row in rows]
    counts, signatures = {}, {}
    for name in names:
        metric = find_metric(name)
        if metric.count_texts is None:
            raise InputError(f"{name!r} is not a metric of translations.")
        options = {"more_references": more} if "more_references" in metric.options else {}
        counts[name] = metric.count_texts(translations, references, lowercase, **options)
        signatures[name] = metric.signature(lowercase, **options) if metric.signature else ""
    for name, command in commands.items():
        numbers = command_scores(command, rows, translations)
        counts[EXTERNAL + name] = np.stack([numbers, np.ones_like(numbers)], axis=1)
        signatures[EXTERNAL + name] = command
    return counts, signatures


def command_scores(command: str, rows: Rows, translations: Sequence[str]) -> np.ndarray:
    """Return the scores (N,) that a program gives to translations.

    It reads a line for each: source, translation and references, separated by tabs. It writes a number for each.

    Raises:
        InputError: it cannot be started, fails, or writes anything else.
    """
    lines = ["\t".join(one_line(text).replace("\t", " ") for text in (row[0], written, *row[1:]))
             for row, written in zip(rows, translations, strict=True)]  # fmt: skip
    try:
        done = subprocess.run(
            shlex.split(command), input="".join(f"{line}\n" for line in lines), capture_output=True, encoding="utf-8",
            check=False,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        raise InputError(f"The metric command {command!r} cannot be started: {error}.") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["without a message"])[-1]
        raise InputError(f"The metric command {command!r} ended with exit code {done.returncode}: {last}")
    answers = done.stdout.split()
    try:
        numbers = np.array([float(answer) for answer in answers])
    except ValueError as error:
        raise InputError(f"The metric command {command!r} must write a number on each line: {error}.") from error
    if len(numbers) != len(rows) or not np.isfinite(numbers).all():
        raise InputError(
            f"The metric command {command!r} must write a finite number for each of {len(rows):,} lines; it wrote "
            f"{len(numbers):,} numbers."
        )
    return numbers


def add_further(
    run: Run, scores: dict[str, Any], counts: Mapping[str, np.ndarray], signatures: Mapping[str, str]
) -> dict[str, Any]:
    """Return scores with further ones, with intervals; they are kept in the run beside the others.

    Args:
        run: the run that was scored.
        scores: the newest ones, from `Task.evaluate`.
        counts, signatures: from `further_counts`.
    """
    added = {name: float(find_metric(name).score(each.sum(0))) for name, each in counts.items()}
    intervals = {name: interval(name, each) for name, each in counts.items()}
    complete = scores | added | {
        "signatures": scores.get("signatures", {}) | dict(signatures),
        "intervals": scores.get("intervals", {}) | intervals,
    }  # fmt: skip
    with locked(run.path / OUTPUTS, wait=True):
        path = plain_file(run.path, f"{scores['outputs']}.safetensors")
        arrays, metadata = read_checked(path)
        write_atomically(path, with_checksum({**arrays, **counts}, metadata))
        entries = [complete if each.get("outputs") == scores["outputs"] else each for each in read(run)]
        table = json.dumps(entries, indent=2, ensure_ascii=False, allow_nan=False)
        write_text(run.path / SCORES, f"{table}\n")
    return complete


def translations_of(run: Run, scores: Mapping[str, Any]) -> list[str]:
    """Return the translations that scores were computed from, one line each."""
    text = plain_file(run.path, f"{scores['outputs']}.txt").read_text(encoding="utf-8")
    return text.removesuffix("\n").split("\n")


def write_sentences(path: Path, rows: Rows, translations: Sequence[str], counts: Mapping[str, np.ndarray]) -> None:
    """Write a line for each sentence as tab-separated values: its scores, source, reference and translation."""
    columns = {name: unit_scores(name, each) for name, each in counts.items()}
    lines = ["\t".join([*columns, "source", "reference", "translation"])]
    for number, (row, written) in enumerate(zip(rows, translations, strict=True)):
        texts = (one_line(text).replace("\t", " ") for text in (row[0], row[1], written))
        lines.append("\t".join([*(f"{column[number]:.4f}" for column in columns.values()), *texts]))
    write_output(path, "".join(f"{line}\n" for line in lines).encode(errors="backslashreplace"))
