"""The provenance of a score: text, weights, settings, seeds, software, machine."""

import dataclasses
import importlib.metadata
import json
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from heedful import __version__, backend
from heedful.config import DecodeConfig
from heedful.config.named_texts import licence_of
from heedful.core.errors import InputError
from heedful.core.plugins import EXTERNAL, find_metric, metric_names
from heedful.core.processors import cores
from heedful.core.storage import (
    locked,
    plain_file,
    read_checked,
    warn_if_not_writable,
    with_checksum,
    write_atomically,
    write_text,
)
from heedful.core.validation import read_json
from heedful.data.corpus import Corpus
from heedful.data.text_files import one_line
from heedful.runs.run import Run
from heedful.runs.scores.metrics import interval

SCORES, OUTPUTS = "scores.json", "outputs"
LIBRARIES = ("keras", "jax", "tensorflow", "torch", "numpy", "sacrebleu", "tokenizers")


def save_scores(
    run: Run,
    corpus: Corpus,
    scores: dict[str, Any],
    counts: Mapping[str, np.ndarray],
    texts: Sequence[str] = (),
    decode: DecodeConfig | None = None,
) -> dict[str, Any]:
    """Complete scores with their provenance, and add them to the run's scores.json; return them.

    Args:
        run: a `Run`.
        corpus: the text that was scored.
        scores: by name.
        counts: by name of a metric, the counts (N, C) from which it is computed. Kept in `outputs/`.
        texts: what the model wrote, one line per unit. Kept in `outputs/` too.
        decode: the `DecodeConfig`, if text was decoded.
    """
    counts = {name: each if find_metric(name).keep_empty else each[each[:, 1] > 0] for name, each in counts.items()}
    scores |= {"intervals": {metric: interval(metric, each) for metric, each in counts.items()}}
    scores |= provenance(run, corpus, decode)
    with warn_if_not_writable("the scores are not kept"):
        _write(run, corpus, scores, counts, texts)
    return scores


def _write(run, corpus, scores, counts, texts):
    """Add scores to scores.json, and their counts and texts to `outputs/`; record where those are."""
    folder = run.path / OUTPUTS
    folder.mkdir(exist_ok=True)
    with locked(folder, wait=True):  # another evaluation of this run may be writing too
        earlier = read(run)
        number = f"{1 + max((int(path.stem) for path in folder.glob('[0-9]*.safetensors')), default=0):04d}"
        scores |= {"outputs": f"{OUTPUTS}/{number}"}
        write_atomically(
            folder / f"{number}.safetensors", with_checksum(counts, {"data_fingerprint": corpus.fingerprint})
        )
        if texts:
            lines = "".join(f"{one_line(text)}\n" for text in texts)
            write_text(folder / f"{number}.txt", lines)
        table = json.dumps([*earlier, scores], indent=2, ensure_ascii=False, allow_nan=False)
        write_text(run.path / SCORES, f"{table}\n")


def read(run: Run) -> list[dict[str, Any]]:
    """Return all scores of a run, oldest first; `InputError` if the file holds no list of scores."""
    path = run.path / SCORES
    content = read_json(plain_file(run.path, SCORES)) if path.exists() else []
    if not isinstance(content, list) or not all(isinstance(scores, dict) for scores in content):
        raise InputError(f"{path} is not a list of scores.")
    return content


def newest_scores(run: Run) -> dict[str, Any]:
    """Return the newest scores of a run by the name of their text."""
    return {scores["data"]: scores for scores in read(run) if "data" in scores}


def is_comparable(scores: Mapping[str, Any]) -> bool:
    """Return whether scores name their text and the file of their counts."""
    return all(isinstance(scores.get(name), str) for name in ("data", "data_fingerprint", "outputs"))


def provenance(run: Run, corpus: Corpus, decode: DecodeConfig | None = None) -> dict[str, Any]:
    """Return the provenance of a score of a run on a text."""
    facts = {
        "data": corpus.name,
        **({"licence": licence} if (licence := licence_of(run.config.data.corpus)) else {}),
        "data_fingerprint": corpus.fingerprint,
        "tokenizer_fingerprints": run.fingerprints(),
        "weights_fingerprint": run.weights_fingerprint(),
        "train_seed": run.config.train.seed,
        "precision": run.config.train.precision,
        "examples": run.task.scored_settings(run.config),
        "version": __version__,
        "backend": backend.NAME,
        "libraries": {name: version for name in LIBRARIES if (version := _version(name))},
        "python": platform.python_version(),
        "hardware": hardware(),
        "command": _command(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    return facts | ({"decode": dataclasses.asdict(decode)} if decode else {})


def hardware() -> str:
    """Return processor, usable cores and device."""
    return f"{_processor()}, {cores()} cores, {backend.device()}"


def _processor():
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        return platform.processor() or platform.machine()  # not Linux
    return platform.machine()


def _version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def counts_of(run: Run, scores: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the counts of a score (N, C), by name of a metric.

    Raises:
        InputError: they are missing, damaged, or of another text.
    """
    path = plain_file(run.path, f"{scores['outputs']}.safetensors")
    arrays, metadata = read_checked(path)
    if metadata.get("data_fingerprint") != scores["data_fingerprint"]:
        raise InputError(f"{path} does not belong to the scores that name it: evaluate {run.path} again.")
    return {
        name: np.asarray(counts)
        for name, counts in arrays.items()
        if name in metric_names() or name.startswith(EXTERNAL)
    }


def _command():
    """Return the command of this process; a notebook's server starts it with arguments of its own."""
    name = Path(sys.argv[0]).name
    return "notebook" if name.startswith("ipykernel") else " ".join([name, *sys.argv[1:]])
