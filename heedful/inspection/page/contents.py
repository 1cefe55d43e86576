"""A run as a page needs it: its description as JSON, and its weights as packed bytes."""

import dataclasses
import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from heedful.config.protected import KINDS
from heedful.core.errors import InputError
from heedful.core.special_tokens import MASK
from heedful.core.storage import read_with_checksum
from heedful.data.glossary import Glossary
from heedful.decoding.candidates import forbidden_ids
from heedful.inference.aligner import Aligner, AlignmentHeads, stored_heads
from heedful.inference.line_reader import LineReader
from heedful.inspection.page.packing import WeightType, pack
from heedful.inspection.page.rounding import largest_difference
from heedful.inspection.page.sentences import example_texts, scored_sentences
from heedful.interop.engines import PAGE
from heedful.runs.run import Run
from heedful.runs.scores.provenance import read as read_scores
from heedful.runs.training_log import PROGRESS
from heedful.runs.weights import count_elements

FORMAT = 1  # format of the description
LARGE = 15_000_000  # parameters above which float16 makes a page slow to open
EARLIER_BYTES = 16_000_000  # of the earlier checkpoints in a page, by default
POINTS = 400  # of a curve
SHOWN_SCORES = ("data", "bleu", "chrf", "exact", "loss", "perplexity", "accuracy", "macro_f1", "bits_per_byte")


class Contents(NamedTuple):
    """A run for a page."""

    description: dict[str, Any]
    weights: list[bytes]
    """For each checkpoint, the best one last."""


def contents_of(
    run: Run, kind: WeightType | None = None, examples: Sequence[str] = (), checkpoints: int | None = None,
    glossary: Glossary | None = None,
) -> Contents:  # fmt: skip
    """Return the contents of a page about a run.

    Args:
        run: a trained `Run` of a task with a `page`.
        kind: type of the weights; None: float16, or int8 for a large model. Earlier checkpoints are always int8.
        examples: texts to begin with; by default some of the run's own.
        checkpoints: number of earlier checkpoints; None: as many as fit in `EARLIER_BYTES`.
        glossary: of terms that translations should have, to begin with.

    Raises:
        InputError: the task has no page, or the run has no weights or damaged ones; or there is a glossary, and the run
            is no translator.
    """
    path = require_page(run)
    if glossary and not run.task.translates:
        raise InputError(f"A glossary is for translators, and {run.path} is none.")
    weights = read_with_checksum(path)[0]
    parameters = count_elements(path)
    kind = kind or ("int8" if parameters > LARGE else "float16")
    max_checkpoints = EARLIER_BYTES // max(parameters, 1) if checkpoints is None else checkpoints
    earlier = earlier_checkpoints(run, max_checkpoints)
    arrays = [one.read() for one in earlier]
    packed = [pack({name: one[name] for name in weights}, "int8") for one in arrays] + [pack(weights, kind)]
    if glossary and not stored_heads(run):  # by which its terms are placed
        Aligner.of_run(run, run.load_model())
    description = describe(run, [one.update for one in earlier], examples, glossary)
    description |= {
        "type": kind, "difference": largest_difference(run, weights, kind, description["examples"]),
        "tensors": [table for _, table in packed],
    }  # fmt: skip
    return Contents(description, [content for content, _ in packed])


def require_page(run: Run) -> Path:
    """Return the path of a run's weights; `InputError` if it has none, or if a page can show nothing of it."""
    if run.task.page is None:
        raise InputError(f"There is no page for runs of task {run.config.task!r}, such as {run.path}.")
    if run.config.model.untrained_head:
        raise InputError(f"{run.path} was imported without a head: it predicts nothing that a page could show.")
    if run.config.data.several_labels:
        raise InputError(f"{run.path} gives a text several labels; a page shows classifiers with one.")
    PAGE.require(run.config.model)
    path = run.weights_path()
    run.refuse_larger_than(path)
    return path


def describe(
    run: Run, earlier: Sequence[int] = (), examples: Sequence[str] = (), glossary: Glossary | None = None
) -> dict[str, Any]:
    """Return the description of a run, without weights.

    Args:
        run: see `require_page`.
        earlier: updates of the earlier checkpoints that the page has.
        examples: texts to begin with; by default some of the run's own.
        glossary: of terms that translations should have, to begin with.
    """
    return {
        "format": FORMAT, "name": run.path.resolve().name, "task": run.task.page,
        "model": dataclasses.asdict(run.config.model), "decode": dataclasses.asdict(run.config.decode),
        "parameters": count_elements(run.weights_path()), "checkpoints": [*earlier, best_update(run)],
        "examples": list(examples) or example_texts(run), "type": "float32", "difference": 0.0,
    } | _of_task(run) | _of_training(run) | _of_terms(run, glossary)  # fmt: skip


def _of_task(run):
    """Return what depends on the task: tokenizers, labels, special tokens."""
    if any(tokenizer.prefix_ids for tokenizer in run.tokenizers()):
        raise InputError(f"The texts of {run.path} begin with a token of their own, which a page does not add.")
    tokenizers = [json.loads(tokenizer.to_json()) for tokenizer in run.tokenizers()]
    sides = dict(zip(("source", "target"), tokenizers, strict=False))
    if sides.get("target") == sides["source"]:
        del sides["target"]
    reader = LineReader.of_run(run)
    return {
        "tokenizers": sides,
        "language": reader.splitter.language,
        "splits": reader.splits(run.config.decode),
        "forbidden": list(forbidden_ids(run.config.decode, run.target_tokenizer)),
        "starts": run.task.starts_texts(run.config),
        "mask": run.tokenizer.lookup(MASK),
        "labels": list(run.config.data.labels),
    }


def _of_training(run):
    """Return the curves and scores of a run, and the sentences of its test text."""
    return {
        "log": run.log.read(), "progress": thinned(run.log.read(PROGRESS), POINTS),
        "scores": [{name: one[name] for name in SHOWN_SCORES if name in one} for one in read_scores(run)],
        "sentences": scored_sentences(run), "importance": run.head_importance(),
    }  # fmt: skip


def _of_terms(run, glossary):
    """Return the terms of a translator, and how the page places them in what the model writes."""
    if not run.task.translates:
        return {}
    heads, model = stored_heads(run) or AlignmentHeads(), run.config.model
    return {
        "glossary": [*glossary.terms.items()] if glossary else [],
        "protected": list(KINDS.values()),
        "soft_terms": LineReader.of_run(run).soft_terms,
        "alignment": {"heads": heads.indices(model.depths["decoder"], model.num_heads), "read_as": heads.read_as},
    }


def thinned(entries: Sequence[Any], max_count: int) -> list[Any]:
    """Return at most `max_count` entries, evenly spaced, the first and the last among them."""
    if len(entries) <= max_count:
        return list(entries)
    return [entries[index] for index in np.linspace(0, len(entries) - 1, max_count).round().astype(int)]


def best_update(run: Run) -> int:
    """Return the update of a run's weights."""
    paths = run.checkpoints.paths()
    if paths:
        return run.checkpoints.read(paths[-1])[1]["best_update"]
    log = run.log.read()
    return log[-1]["update"] if log else 0


class EarlierCheckpoint(NamedTuple):
    """Weights from before the best update."""

    update: int
    read: Callable[[], dict[str, np.ndarray]]


def earlier_checkpoints(run: Run, max_count: int) -> list[EarlierCheckpoint]:
    """Return at most `max_count` earlier states, oldest first: snapshots, and the last checkpoints."""
    readers = {int(path.stem): functools.partial(run.snapshots.read, path) for path in run.snapshots.paths()}
    for path in run.checkpoints.paths():
        readers.setdefault(int(path.stem), functools.partial(_weights_of_state, run, path))
    best = best_update(run)
    updates = [update for update in sorted(readers) if update != best]
    listed = thinned(updates, max_count) if max_count > 1 else updates[:max_count]
    return [EarlierCheckpoint(update, readers[update]) for update in listed]


def _weights_of_state(run, path):
    """Return the weights in a checkpoint by the names of weight files: their own without kind and number."""
    arrays = run.checkpoints.read(path)[0]
    return {name.split("/", 2)[2]: array for name, array in arrays.items() if name.startswith("model/")}
