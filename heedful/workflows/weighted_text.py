"""Training text in several files, some of which are read more often than others."""

from fnmatch import fnmatch

from heedful.data.corpus import Corpus
from heedful.data.examples import Examples
from heedful.data.mixture import MixedExamples
from heedful.errors import InputError
from heedful.run import Run
from heedful.tasks.task import Corpora, Report


def weighted_examples(run: Run, corpora: Corpora, report: Report) -> Examples:
    """Return the training examples of a run; with `data.weights`, files have shares of the batches by their weights.

    Files of equal weight are one text. Its share of the batches is its number of batches times its weight, relative to
    those of the others, so an item of a file of weight 3 is read three times as often as one of weight 1.

    Raises:
        InputError: a pattern matches no file.
    """
    data = run.config.data
    if not data.weights:
        return run.task.training_examples(run, corpora, report)
    texts = _by_weight(run)
    if len(texts) == 1:
        return run.task.training_examples(run, corpora, report)
    parts = []
    for weight, corpus in texts.items():
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


def _by_weight(run) -> dict[float, Corpus]:
    """Return the training text by weight, in the order of the files."""
    data, task = run.config.data, run.task
    groups = task.file_groups(data.train, data.origin)
    patterns = data.file_weights()
    found: dict[float, list[Corpus]] = {}
    for group in groups:
        weights = (weight for pattern, weight in patterns if fnmatch(group[0].name, pattern))
        text = task.open_text(run.config, list(map(str, group)), data.origin)
        found.setdefault(next(weights, 1.0), []).append(text)
    for pattern, _ in patterns:
        if not any(fnmatch(group[0].name, pattern) for group in groups):
            names = ", ".join(sorted(group[0].name for group in groups)[:5])
            raise InputError(f"data.weights: no training file matches {pattern!r}; they are {names}.")
    return {weight: Corpus.joined(texts) for weight, texts in found.items()}
