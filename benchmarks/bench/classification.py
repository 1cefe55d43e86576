"""Compare classifiers with a linear support vector machine over TF-IDF, on the same text."""

import dataclasses
import importlib.util
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from heedful import workflows
from heedful.commands.arguments import add_json, whole_number
from heedful.config import Config, settings
from heedful.config.recipes import find_recipe
from heedful.core.errors import InputError
from heedful.core.plugins import find_task
from heedful.core.validation import read_json
from heedful.data.corpus import Corpus
from heedful.data.labels import label_numbers
from heedful.runs.run import Run
from heedful.runs.scores.calibration import calibration_error
from heedful.tasks.calibration import FILE as CALIBRATION
from heedful.training.evaluation import class_scores

SVM = "TF-IDF and SVM"
TAKES_SETTINGS = True


class Result(NamedTuple):
    """How well one classifier did on the test text."""

    accuracy: float
    macro_f1: float
    minutes: float
    uncalibrated_error: float | None = None
    """Calibration error before the logits were divided by the temperature."""
    calibration_error: float | None = None


def require_svm() -> None:
    """Raise `InputError` if scikit-learn is not installed."""
    if not importlib.util.find_spec("sklearn"):
        raise InputError("The support vector machine needs scikit-learn: pip install scikit-learn.")


def svm_result(corpora: Mapping[str, Corpus]) -> Result:
    """Train a linear SVM on words and pairs of words, weighted by TF-IDF; score it on the test text."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    labels = sorted({label for label, _ in corpora["train"]})
    began = time.monotonic()
    # Tokens between spaces: the default of scikit-learn drops single letters and digits, which costs 3 points on TREC.
    words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\S+")  # noqa: S106
    machine = make_pipeline(words, LinearSVC())
    machine.fit([text for _, text in corpora["train"]], label_numbers(corpora["train"], labels))
    predicted = machine.predict([text for _, text in corpora["test"]])
    scores = class_scores(predicted, label_numbers(corpora["test"], labels), labels)
    return Result(scores["accuracy"], scores["macro_f1"], (time.monotonic() - began) / 60)


def own_result(config: Config, path: Path, report: Callable[[str], Any]) -> Result:
    """Train a run, unless `path` holds it already, and score it on its test text.

    Raises:
        InputError: `path` holds a run with other settings.
    """
    try:
        run = Run.open(path)
    except InputError:
        run = workflows.train(config, path, report)
    if not _same_settings(config, run.config):
        raise InputError(f"{path} holds a run with other settings: choose another --folder, or delete it.")
    if not (path / "scores.json").is_file():
        run = workflows.resume(path, report=report)
    corpus = run.task.text_to_score(run.task.find_corpora(run.config))
    classifier: Any = run.task.predictor([run])
    wanted = label_numbers(corpus, classifier.labels)
    logits = classifier.logits([text for _, text in corpus])
    scores = class_scores(logits.argmax(-1), wanted, classifier.labels)
    temperature = read_json(path / CALIBRATION)["temperature"] if (path / CALIBRATION).is_file() else 1.0
    errors = [_error(logits * factor, wanted) for factor in (temperature, 1.0)]
    minutes = run.log.read()[-1]["seconds"] / 60
    return Result(scores["accuracy"], scores["macro_f1"], minutes, *errors)


def _same_settings(config, trained):
    """Return whether a run was trained by a config; its classes, and sizes from another run, were found by training."""
    same_data = dataclasses.replace(trained.data, labels=config.data.labels) == config.data
    return same_data and trained.train == config.train and (config.train.init_from or trained.model == config.model)


def _error(logits, wanted):
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities = exponentials / exponentials.sum(-1, keepdims=True)
    return calibration_error(probabilities.max(-1), probabilities.argmax(-1) == wanted)


def row(name: str, results: Sequence[Result]) -> str:
    """Return a line of the table: the means over seeds, and the lowest and highest accuracy."""
    means = [_mean([result[field] for result in results]) for field in range(len(Result._fields))]
    accuracy, macro_f1, minutes, before, after = means
    worst, best = (pick(result.accuracy for result in results) for pick in (min, max))
    spread = f"{worst:.1%} to {best:.1%}" if len(results) > 1 else ""
    errors = "".join(f" {error:9.3f}" if error is not None else f" {'':9s}" for error in (before, after))
    return f"{name:24s} {accuracy:8.2%} {spread:>16s} {macro_f1:8.4f}{errors} {minutes:8.1f}"


TITLE = f"{'':24s} {'accuracy':>8s} {'seeds':>16s} {'macro-F1':>8s} {'ECE raw':>9s} {'ECE':>9s} {'minutes':>8s}"


def _mean(values):
    return None if None in values else statistics.mean(values)


def add_arguments(parser):
    """Add the arguments of the benchmark."""
    parser.add_argument("recipes", nargs="*", default=["trec", "sst2"], help="recipes (default: trec sst2)")
    parser.add_argument("--seeds", nargs="+", type=whole_number, default=[1, 2, 3], help="seeds (default: 1 2 3)")
    parser.add_argument(
        "--folder", type=Path, default=Path("runs/bench-classify"),
        help="where the runs are kept; finished ones are not trained again (default: runs/bench-classify)",
    )  # fmt: skip
    add_json(parser)
    parser.epilog = (
        "Settings as in `heedful train`: --SECTION.KEY VALUE. ECE is the expected calibration error on the test text, "
        "before (raw) and after the temperature is applied. Minutes are those of the training, validation included."
    )


def run(options):
    """Run the benchmark."""
    require_svm()
    measured = {}
    for recipe in options.recipes:
        path = find_recipe(recipe)
        configs = [settings.of_recipe(path, [*options.overrides, f"--train.seed={seed}"]) for seed in options.seeds]
        task = find_task(configs[0].task)
        if "labelled" not in task.text_layout(configs[0].data) or configs[0].data.several_labels:
            raise InputError(f"{recipe} does not classify texts with one label each.")
        print(f"{recipe}: {SVM}")
        measured[f"{recipe}: {SVM}"] = [svm_result(task.find_corpora(configs[0]))]
        for config in configs:
            name = f"{config.name}-{config.train.seed}"
            print(f"{recipe}: seed {config.train.seed}")
            result = own_result(config, options.folder / name, print)
            measured.setdefault(recipe, []).append(result)
            print(row(name, [result]))
    if options.json:
        print(json.dumps({name: [result._asdict() for result in results] for name, results in measured.items()}))
        return
    print(TITLE)
    for name, results in measured.items():
        print(row(name, results))
