"""Text classification: a classifier with its tokenizer and labels."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from keras import ops

from heedful.config import DecodeConfig
from heedful.core.errors import InputError
from heedful.core.line_stream import line_batches
from heedful.core.validation import require_text, require_texts
from heedful.data.tokenizer import Tokenizer
from heedful.inference.batching import BatchedProgram
from heedful.inference.predictor import (
    Predictor,
    ScoredLabel,
    Warn,
    WordEffect,
    as_array,
    discard_warning,
    require_vocabulary,
)
from heedful.runs.run import Run

TEXTS_AT_ONCE = 1024  # texts classified together
DECIDED = 0.5  # probability from which on a text has a label, if it may have several


class TextClassifier(Predictor):
    """Predicts the class of a text.

    Args:
        model: a `Classifier`.
        tokenizer: the one it was trained with.
        labels: names of the classes, in the order of the model.
        length: maximum text length in tokens, start and end token included.
    """

    def __init__(self, model: Any, tokenizer: Tokenizer, labels: Iterable[str], length: int):
        self.model, self.tokenizer, self.labels, self.length = model, tokenizer, tuple(labels), length
        require_vocabulary(model, vocab_size=tokenizer)
        if len(self.labels) != model.num_classes:
            raise ValueError(f"The model has {model.num_classes} classes, but {len(self.labels)} labels were given.")
        self.several_labels = model.several_labels
        self._program = BatchedProgram(lambda ids: ops.cast(model(ids), "float32"), model, length)

    @classmethod
    def from_run(cls, run: Run, decode: DecodeConfig | None = None) -> "TextClassifier":
        return cls(run.load_model(), run.tokenizer, run.config.data.labels, run.config.data.max_tokens)

    def predict_stream(
        self, texts: Iterable[str], warn: Warn | None = None, **options: Any
    ) -> Iterator[ScoredLabel | list[ScoredLabel]]:
        """Yield the `ScoredLabel` of each text; if texts have several labels, a list of them, most likely first."""
        first = 1
        for window in line_batches(iter(texts), TEXTS_AT_ONCE):
            for row in self.probabilities(window, warn, first):
                yield self.decide(row)
            first += len(window)

    def decide(self, probabilities: np.ndarray) -> ScoredLabel | list[ScoredLabel]:
        """Return what the probabilities (C,) of a text say: the most likely class, or all of at least one half."""
        if not self.several_labels:
            return ScoredLabel(self.labels[probabilities.argmax()], float(probabilities.max()))
        order = np.argsort(-probabilities, kind="stable")
        return [ScoredLabel(self.labels[c], float(probabilities[c])) for c in order if probabilities[c] >= DECIDED]

    def logits(self, texts: Iterable[str], warn: Warn | None = None, first: int = 1) -> np.ndarray:
        """Return the logit of each class for each text: (N, C). `first`: number of the first text, in warnings."""
        rows = self._program(self.tokenizer.encode_batch(require_texts(texts)), warn, first)
        return as_array(rows, len(self.labels))

    def probabilities(self, texts: Iterable[str], warn: Warn | None = None, first: int = 1) -> np.ndarray:
        """Return the probability of each class for each text: (N, C). `first`: see `logits`."""
        logits = self.logits(texts, warn, first)
        if self.several_labels:
            return 0.5 * (1 + np.tanh(0.5 * logits))  # a sigmoid that cannot overflow
        exponentials = np.exp(logits - logits.max(-1, keepdims=True, initial=-np.inf))
        return exponentials / exponentials.sum(-1, keepdims=True)

    def classify(self, texts: Iterable[str], warn: Warn | None = None) -> list[str]:
        """Return the result of a text, see `predict_stream`, or a list of them for a list of texts."""
        return self.predict([texts], warn)[0] if isinstance(texts, str) else self.predict(texts, warn)

    def explain(self, text: str, label: str | None = None) -> list[WordEffect]:
        """Return how much each word of a text changes the probability of a class: with it, less without it.

        Args:
            text: words separated by white space.
            label: the class; None: the most likely one.

        Raises:
            InputError: there is no such class.
        """
        words = require_text(text).split()
        if label is not None and label not in self.labels:
            raise InputError(f"There is no class {label!r}; the model knows {', '.join(self.labels)}.")
        [whole] = self.probabilities([text], discard_warning)
        column = int(whole.argmax()) if label is None else self.labels.index(label)
        count = self._count_read(words)
        # Without a word, as many words beyond those that are read can move up as it has bytes.
        shortened = (
            " ".join(words[:index] + words[index + 1 : count + len(words[index].encode())]) for index in range(count)
        )
        without = (row for window in line_batches(shortened, TEXTS_AT_ONCE)
                   for row in self.probabilities(window, discard_warning))  # fmt: skip
        effects = [float(whole[column] - row[column]) for row in without] + [0.0] * (len(words) - count)
        return [WordEffect(word, effect) for word, effect in zip(words, effects, strict=True)]

    def _count_read(self, words: Sequence[str]) -> int:
        """Return how many words of a text the model reads, at least in part."""
        text, max_tokens = " ".join(words), self.length - 2
        _, spans = self.tokenizer.ids_and_spans(text)
        if len(spans) <= max_tokens:
            return len(words)
        return text.count(" ", 0, spans[max_tokens - 1][1]) + 1
