"""Text classification: a classifier with its tokenizer and labels."""

from collections.abc import Iterable, Iterator

import numpy as np
from keras import ops

from heedful.config import DecodeConfig
from heedful.inference.batching import BatchedProgram
from heedful.inference.predictor import Predictor, ScoredLabel, Warn, as_array
from heedful.line_stream import line_batches
from heedful.validation import require_texts

WINDOW = 1024  # texts classified together


class TextClassifier(Predictor):
    """Predicts the class of a text.

    Args:
        model: a `Classifier`.
        tokenizer: the one it was trained with.
        labels: names of the classes, in the order of the model.
        length: maximum text length in tokens, start and end token included.
    """

    def __init__(self, model, tokenizer, labels: Iterable[str], length: int):
        self.model, self.tokenizer, self.labels, self.length = model, tokenizer, tuple(labels), length
        self._program = BatchedProgram(lambda ids: ops.softmax(ops.cast(model(ids), "float32")), model, length)

    @classmethod
    def from_run(cls, run, decode: DecodeConfig | None = None) -> "TextClassifier":
        return cls(run.load_model(), run.tokenizer, run.config.data.labels, run.config.data.max_tokens)

    def predict_stream(self, texts, warn: Warn | None = None, **options) -> Iterator[ScoredLabel]:
        """Yield the `ScoredLabel` of each text."""
        for window in line_batches(iter(texts), WINDOW):
            for row in self.probabilities(window, warn):
                yield ScoredLabel(self.labels[row.argmax()], float(row.max()))

    def probabilities(self, texts: Iterable[str], warn: Warn | None = None) -> np.ndarray:
        """Return the probability of each class for each text: (N, C)."""
        rows = self._program(self.tokenizer.encode_batch(require_texts(texts)), warn)
        return as_array(rows, len(self.labels))

    def classify(self, texts, warn: Warn | None = None):
        """Return the `ScoredLabel` of a text, or a list of them for a list of texts."""
        return self.predict([texts], warn)[0] if isinstance(texts, str) else self.predict(texts, warn)
