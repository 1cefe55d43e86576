"""heedful classify: write a class for each line."""

import argparse
import json
import sys
from typing import Any

from heedful.commands.arguments import TEXTS, add_adapter, add_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_run(parser)
    add_adapter(parser)
    parser.add_argument("files", **TEXTS)
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument(
        "--scores", action="store_true", help="write the probability after the class, separated by a tab"
    )
    forms.add_argument(
        "--probabilities", action="store_true", help="write a JSON object for each line, with all probabilities"
    )
    forms.add_argument(
        "--explain", action="store_true",
        help="write after the class how much each word raises its probability (+) or lowers it (-), strongest first",
    )  # fmt: skip


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    from heedful import backend
    from heedful.commands import terminal
    from heedful.core.line_stream import line_batches
    from heedful.inference.text_classifier import TEXTS_AT_ONCE, TextClassifier
    from heedful.runs.run import Run

    run = Run.open(options.run).of_task("classify").with_adapter(options.adapter)
    backend.keep_compilations()
    terminal.note_idle_devices()
    cut: list[str] = []
    classifier = TextClassifier.from_run(run)
    for window in line_batches(terminal.read(options.files), TEXTS_AT_ONCE):
        for text, row in zip(window, classifier.probabilities(window, cut.append), strict=True):
            decided = classifier.decide(row)
            labels = decided if isinstance(decided, list) else [decided]
            if options.probabilities:
                names = [label for label, _ in labels]
                probabilities = {name: round(float(p), 6) for name, p in zip(classifier.labels, row, strict=True)}
                record = {"labels": names} if classifier.several_labels else {"label": names[0]}
                print(json.dumps(record | {"probabilities": probabilities}, ensure_ascii=False))
            elif options.explain:
                print(f"{names_of(labels)}\t{effects(classifier, text, labels)}")
            elif options.scores:
                print("\t".join([names_of(labels), ",".join(f"{p:.4f}" for _, p in labels)]))
            else:
                print(names_of(labels))
        sys.stdout.flush()
    terminal.warn_of_cut_lines(len(cut))


def names_of(labels: Any) -> str:
    """Return the names of scored labels as in the training text: separated by commas, or a dash."""
    from heedful.data.labels import written_labels

    return written_labels(label for label, _ in labels)


def effects(classifier: Any, text: str, labels: Any) -> str:
    """Return the words of a text with their effect on the first of the labels, the strongest first."""
    words = classifier.explain(text, labels[0].label if labels else None)
    words.sort(key=lambda effect: -abs(effect.effect))
    return " ".join(f"{word}:{effect:+.3f}" for word, effect in words)
