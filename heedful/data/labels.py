"""Labelled texts for classification.

Axes: B texts, T length of a text with its start and end token.
"""

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from heedful.core.errors import InputError, InputWarning
from heedful.data.batches import BatchPlan, Shape
from heedful.data.corpus import Corpus, fingerprint_files, resolve_all
from heedful.data.encoded import Ragged
from heedful.data.examples import PlannedExamples, enclosed
from heedful.data.header import refuse_header
from heedful.data.text_files import read_lines

NAMED = 10  # most labels listed in a message
NO_LABEL = "-"  # written for a text without any of several labels
JUDGED_TEXTS = 20  # fewest texts whose labels `require_labels` judges
JUDGED_LABELS = 20  # fewest labels that it compares with the number of texts


def read_labelled(paths: Sequence[str | Path], origin: str = "") -> Corpus:
    """Open files of `label<TAB>text` or `label text` lines as a `Corpus` of (label, text).

    A file is tab-separated if its first line has a tab.

    Raises:
        InputError: a file is missing; during reading, a line has no label or no text (the message names it), or the
            first line names the columns.
    """
    files = resolve_all(paths, origin)

    def examples():
        for path in files:
            separator = None
            for number, line in enumerate(read_lines(path), start=1):
                separator = separator or separator_of(line)
                example = split_labelled(line, separator)
                if example is None:
                    named = "a tab" if separator == "\t" else "a space"
                    raise InputError(
                        f"{path}, line {number}: expected a label, {named} and a text; found {line!r:.60}."
                    )
                if number == 1:
                    refuse_header(path, line, example)
                yield example

    return Corpus(examples, fingerprint_files(files), " + ".join(map(str, files)))


def separator_of(first_line: str) -> str:
    """Return the separator of label and text in a file: a tab if its first line has one, else a space."""
    return "\t" if "\t" in first_line else " "


def split_labelled(line: str, separator: str) -> tuple[str, str] | None:
    """Return the label and text of a line, or None if it lacks one of them."""
    label, _, text = line.partition(separator)
    return (label.strip(), text) if label.strip() and text.strip() else None


def require_labels(name: str, examples: Iterable[tuple[str, str]]) -> list[str]:
    """Return the labels of (label, text) pairs, one label each, sorted; warn about labels that occur once.

    Args:
        name: of the text, for messages.
        examples: the pairs; they are read twice.

    Raises:
        InputError: the first column cannot be labels: it differs in more than half of the rows, or takes more values
            than the second.
    """
    counts = Counter(label for label, _ in examples)
    labels, texts = sorted(counts), counts.total()
    if texts < JUDGED_TEXTS:
        return labels
    if len(labels) > texts / 2:
        commas = sum("," in label for label in labels) > len(labels) / 2
        advice = "These look like comma-separated values: write a tab in place of the first comma." if commas else ""
        raise InputError(
            f"{name}: {texts:,} texts have {len(labels):,} different labels, such as {labels[0]!r:.60}. Each line "
            f"needs a label, a tab or a space, and a text. {advice}".rstrip()
        )
    if len(labels) > JUDGED_LABELS and _fewer_texts(examples, len(labels)):
        raise InputError(
            f"{name}: there are more different labels ({len(labels):,}) than different texts. Are the columns swapped? "
            "The label comes first."
        )
    if rare := [label for label in labels if counts[label] == 1]:
        named = ", ".join(rare[:NAMED]) + (", ..." if len(rare) > NAMED else "")
        warnings.warn(
            f"{name}: {len(rare):,} of {len(labels):,} labels occur only once: {named}. Is the first word of each line "
            "its label?",
            InputWarning, stacklevel=2,
        )  # fmt: skip
    return labels


def _fewer_texts(examples, count):
    """Return whether there are fewer than `count` different texts."""
    different: set[str] = set()
    for _, text in examples:
        different.add(text)
        if len(different) >= count:
            return False
    return True


def label_numbers(corpus: Corpus, labels: Sequence[str]) -> np.ndarray:
    """Return the index in `labels` of each text's label (N,).

    Raises:
        InputError: a label is not in `labels`; the message names the text.
    """
    return np.asarray([number for [number] in _numbered(corpus, labels, lambda label: [label])], np.int32)


def _numbered(corpus, labels, split):
    """Yield for each text the indices in `labels` of the labels that `split` finds in what precedes it."""
    numbers = {label: number for number, label in enumerate(labels)}
    for line, (written, _) in enumerate(corpus, start=1):
        names = split(written)
        if unknown := [label for label in names if label not in numbers]:
            raise InputError(
                f"{corpus.name}, text {line}: the label {unknown[0]!r} is not one of the {len(labels)} that the model "
                f"knows: {', '.join(labels[:NAMED])}{', ...' if len(labels) > NAMED else '.'}"
            )
        yield [numbers[label] for label in names]


def split_labels(text: str) -> list[str]:
    """Return the labels of a text that has several, separated by commas, or none, written as a dash.

    >>> split_labels("love,joy"), split_labels("-")
    (['love', 'joy'], [])
    """
    return [] if text == NO_LABEL else [label.strip() for label in text.split(",") if label.strip()]


def written_labels(labels: Iterable[str]) -> str:
    """Return the labels of a text as `split_labels` reads them."""
    return ",".join(labels) or NO_LABEL


def label_sets(corpus: Corpus, labels: Sequence[str]) -> np.ndarray:
    """Return which of `labels` each text has: integers 0 and 1 (N, C).

    Raises:
        InputError: a label is not in `labels`; the message names the text.
    """
    numbered = list(_numbered(corpus, labels, split_labels))
    sets = np.zeros((len(numbered), len(labels)), np.int32)
    for row, numbers in zip(sets, numbered, strict=True):
        row[numbers] = 1
    return sets


class LabelledExamples(PlannedExamples):
    """Texts with their class indices.

    Args:
        texts: `Ragged` ids without start and end tokens.
        labels: the class index of each text (N,), or which classes it has (N, C).
        plan: a `BatchPlan` over the lengths of the texts, start and end token included.
        weights: how much each text counts (N,); None: 1.
    """

    def __init__(self, texts: Ragged, labels: np.ndarray, plan: BatchPlan, weights: np.ndarray | None = None):
        super().__init__(plan)
        self.texts, self.weights = texts, weights
        self.labels = labels if labels.ndim == 2 else labels[:, None]

    def read(self, rows: np.ndarray, shape: Shape, draw: tuple[int, ...]) -> dict[str, np.ndarray]:
        """Return ids (B, T), labels (B, 1) or (B, C), and float32 weights (B, 1)."""
        real = (rows >= 0)[:, None]
        weights = 1.0 if self.weights is None else self.weights[rows][:, None]
        return {
            "ids": enclosed(self.texts, rows, shape.target_length),
            "labels": np.where(real, self.labels[rows], 0),
            "weights": (real * weights).astype(np.float32),
        }
