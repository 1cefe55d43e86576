"""Evaluation: text scores with their signatures, class scores, and loss over tokens."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from heedful import backend
from heedful.core.errors import InputError
from heedful.data.examples import Examples
from heedful.runs.scores.metrics import text_counts, text_metrics, text_signatures
from heedful.training.objective import batch_sums

if TYPE_CHECKING:
    import keras


def score_text(
    hypotheses: Sequence[str],
    references: Sequence[str],
    lowercase: bool = False,
    counts: Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Score translations against references.

    Args:
        hypotheses, references: lists of text.
        lowercase: whether to ignore case; recorded in the signatures.
        counts: the result of `text_counts` for the same texts and options, if it is known.
        options: of metrics: `tokenize`, for BLEU, and `more_references`, see `Metric`.

    Returns:
        every metric of translations by name (bleu and chrf from 0 to 100, as of sacrebleu), `exact`, the share of
        sentences identical to a reference, and `signatures` of the metrics.
    """
    metrics = text_metrics()
    if counts is None:
        counts = text_counts(hypotheses, references, lowercase, **options)
    scores: dict[str, Any] = {name: float(metrics[name].score(each.sum(0))) for name, each in counts.items()}
    groups = zip(references, options.get("more_references") or [()] * len(references), strict=True)
    fold = str.lower if lowercase else str
    exact = (
        fold(text) in map(fold, (reference, *others))
        for text, (reference, others) in zip(hypotheses, groups, strict=True)
    )
    scores["exact"] = sum(exact) / len(references)
    return scores | {"signatures": text_signatures(lowercase, **options)}


def class_scores(predicted: np.ndarray, wanted: np.ndarray, labels: Sequence[str]) -> dict[str, Any]:
    """Score `predicted` classes against true classes `wanted`, both integers (N,).

    Returns:
        accuracy, macro_f1 (the mean over the classes that occur in either), f1 by label, classes (precision, recall, f1
        and texts by label), texts (their number), and confusion (rows are true classes, columns are predictions).
    """
    confusion = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(confusion, (wanted, predicted), 1)
    classes = _by_class(labels, confusion.diagonal(), confusion.sum(0), confusion.sum(1))
    f1 = {label: entry["f1"] for label, entry in classes.items()}
    return {
        "accuracy": float(confusion.trace() / len(wanted)),
        "macro_f1": sum(f1.values()) / len(f1),
        "f1": f1,
        "classes": classes,
        "texts": len(wanted),
        "confusion": confusion.tolist(),
    }


def label_set_scores(decided: np.ndarray, wanted: np.ndarray, labels: Sequence[str]) -> dict[str, Any]:
    """Score sets of labels `decided` against the true ones `wanted`, both 0 or 1 (N, C).

    Returns:
        accuracy (texts with exactly the right labels), micro_f1 (over all decisions), and macro_f1, f1, classes and
        texts as in `class_scores`.
    """
    right, predicted, true = (decided & wanted).sum(0), decided.sum(0), wanted.sum(0)
    classes = _by_class(labels, right, predicted, true)
    f1 = {label: entry["f1"] for label, entry in classes.items()}
    return {
        "accuracy": float((decided == wanted).all(-1).mean()),
        "micro_f1": float(2 * right.sum() / max(1, predicted.sum() + true.sum())),
        "macro_f1": sum(f1.values()) / max(1, len(f1)),
        "f1": f1,
        "classes": classes,
        "texts": len(wanted),
    }


def _by_class(labels, right, predicted, true):
    """Return precision, recall, f1 and true texts by label, for the labels that occur."""
    counts = zip(labels, right.tolist(), predicted.tolist(), true.tolist(), strict=True)
    return {
        label: {
            "precision": hits / max(1, guesses), "recall": hits / max(1, texts), "f1": 2 * hits / (guesses + texts),
            "texts": texts,
        }
        for label, hits, guesses, texts in counts
        if guesses + texts
    }  # fmt: skip


class TokenScores:
    """Loss, perplexity and accuracy of a model on examples, averaged over all tokens.

    Args:
        model: a model of any family.
        examples: examples whose `one_pass()` yields batches with labels and weights.
    """

    def __init__(self, model: "keras.Model", examples: Examples):
        self.examples = examples
        self._sums = backend.compiled(lambda batch: batch_sums(model, batch), model)

    def __call__(self) -> dict[str, Any]:
        """Return the `summary` of all batches."""
        return self.summary(self.sums())

    def sums(self) -> np.ndarray:
        """Return (negative log-likelihood in nats, correct tokens, tokens) for each batch: (batches, 3)."""
        results = backend.spread(lambda batch: backend.to_numpy(self._sums(batch))[1:], self.examples.one_pass())
        return np.array(list(results), float)

    @staticmethod
    def summary(sums: np.ndarray) -> dict[str, Any]:
        """Return loss (negative log-likelihood in nats per token, not smoothed), perplexity, accuracy and tokens.

        Raises:
            InputError: no token counts.
        """
        nll, right, tokens = sums.sum(0) if len(sums) else np.zeros(3)
        if not tokens:
            raise InputError("There is nothing to score: the text has no token that counts.")
        loss = nll / tokens
        perplexity = math.exp(min(loss, 700))
        return {"loss": loss, "perplexity": perplexity, "accuracy": right / tokens, "tokens": int(tokens)}
