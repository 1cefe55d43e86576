"""Training text in several files, some of which are read more often than others."""

from fnmatch import fnmatch
from pathlib import Path

from heedful.config import Config
from heedful.core.errors import InputError
from heedful.core.progress import Report
from heedful.data.corpus import Corpus
from heedful.data.examples import Examples
from heedful.data.mixture import MixedExamples
from heedful.runs.run import Run
from heedful.tasks.task import Corpora, Task


def weighted_examples(run: Run, corpora: Corpora, report: Report) -> Examples:
    """Return the training examples of a run; with `data.weights`, files have shares of the batches by their weights.

    Files of equal weight are one text. Its share of the batches is its number of batches times its weight, relative to
    those of the others, so an item of a file of weight 3 is read three times as often as one of weight 1.

    Raises:
        InputError: a pattern matches no file.
    """
    config = run.config
    files = files_by_weight(run.task, config)
    if len(files) < 2:
        return run.task.training_examples(run, corpora, report)
    parts = []
    for weight, groups in files.items():
        texts = [run.task.open_text(config, list(map(str, group)), config.data.origin) for group in groups]
        corpus = Corpus.joined(texts)
        read = run.task.training_examples(
            run, {"train": corpus}, lambda line, w=weight: report(f"weight {w:g}: {line}")
        )
        parts.append((weight, read))
    (weight, mixed), *others = parts
    mass = weight * mixed.batches_per_epoch
    for weight, read in others:
        added = weight * read.batches_per_epoch
        mass += added
        mixed = MixedExamples(mixed, read, added / mass, f"weight {weight:g}", whole=True)
    return mixed


def files_by_weight(task: Task, config: Config) -> dict[float, list[tuple[Path, ...]]]:
    """Return the files of the training text by weight, in their order: for each text, those that belong together.

    Raises:
        InputError: a pattern in `data.weights` matches no file.
    """
    patterns = config.data.file_weights()
    if not patterns:
        return {}
    groups = task.file_groups(config.data.train, config.data.origin)
    files: dict[float, list[tuple[Path, ...]]] = {}
    for group in groups:
        weights = (weight for pattern, weight in patterns if fnmatch(group[0].name, pattern))
        files.setdefault(next(weights, 1.0), []).append(group)
    for pattern, _ in patterns:
        if not any(fnmatch(group[0].name, pattern) for group in groups):
            names = ", ".join(sorted(group[0].name for group in groups)[:5])
            raise InputError(f"data.weights: no training file matches {pattern!r}; they are {names}.")
    return files
