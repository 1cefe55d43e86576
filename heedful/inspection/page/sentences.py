"""The texts of a page: examples to begin with, and a scored test text."""

import itertools
from collections.abc import Sequence
from typing import Any

from heedful.core.errors import InputError
from heedful.core.storage import plain_file
from heedful.inspection.run_text import text_to_show
from heedful.runs.run import Run
from heedful.runs.scores.metrics import find_metric
from heedful.runs.scores.provenance import read
from heedful.runs.training_log import SAMPLE_DATA

EXAMPLES = 4  # texts that are offered to begin with
LONGEST = 200  # characters of an example
SENTENCES = 1000  # maximum number of test sentences in a page


def example_texts(run: Run) -> list[str]:
    """Return some texts that the run can read: of its test or validation text, or those that its validations showed."""
    try:
        corpora = text_to_show(run)
        corpus = run.task.text_to_score(corpora) if "test" in corpora else corpora["valid"]
        items = list(itertools.islice(corpus, 50))
    except InputError:  # the text is not on this machine, or not to be shown
        return _shown_texts(run)[:EXAMPLES]
    texts = [run.task.text_of(item) for item in items]
    kept = [text for text in dict.fromkeys(texts) if 0 < len(text) <= LONGEST]
    return kept[:EXAMPLES] or _shown_texts(run)[:EXAMPLES]


def _shown_texts(run):
    entries = run.log.read(SAMPLE_DATA)
    samples = entries[-1].get("samples", []) if entries else []
    return [sample.get("text") or sample.get("prompt", "") for sample in samples]


def scored_sentences(run: Run, max_sentences: int = SENTENCES) -> dict[str, Any] | None:
    """Return the run's test text with what the run wrote, or None if it was not scored or is not on this machine.

    Each row has source, reference, written, and chrF from 0 to 100 (a classifier: 100 if the label is right). Of a
    longer text the `max_sentences` rows with the lowest chrF are kept.
    """
    try:
        corpus = run.task.text_to_score(text_to_show(run))
    except InputError:
        return None
    entries = [
        scores for scores in read(run) if scores.get("data_fingerprint") == corpus.fingerprint and "outputs" in scores
    ]
    if not entries or not (run.path / f"{entries[-1]['outputs']}.txt").is_file():
        return None
    text = plain_file(run.path, f"{entries[-1]['outputs']}.txt").read_text(encoding="utf-8")
    written, items = text.split("\n")[:-1], list(corpus)
    if len(written) != len(items):
        return None
    pairs = [pair for item in items if (pair := run.task.pair_of(item))]
    if len(pairs) != len(items):
        return None
    rows = [
        {"source": source, "reference": reference, "written": hypothesis, "chrf": score}
        for (source, reference), hypothesis, score in zip(pairs, written, _chrf(run, written, pairs), strict=True)
    ]
    kept = sorted(rows, key=lambda row: row["chrf"])[:max_sentences]
    return {"data": corpus.name, "total": len(rows), "rows": kept}


def _chrf(run, written: Sequence[str], pairs) -> list[float]:
    if not run.task.decodes_to_score:
        return [100.0 * (hypothesis == label) for hypothesis, (_, label) in zip(written, pairs, strict=True)]
    from heedful.runs.scores.metrics import text_counts

    metric = find_metric("chrf")
    counts = text_counts(written, [reference for _, reference in pairs], run.target_tokenizer.lowercase)["chrf"]
    return [round(float(metric.score(row)), 1) for row in counts]
