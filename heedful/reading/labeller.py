"""Texts in, classes out: a classifier with its tokenizer and labels."""

import numpy as np
from keras import ops

from heedful.checked import several
from heedful.reading.batched import Batched


class Labeller:
    """Says which class a text belongs to.

    Args:
        model: a `Classifier`.
        tokenizer: what it was trained with.
        labels: names of the classes, in the order of the model.
        length: longest text that is read, in tokens with start and end.
    """

    def __init__(self, model, tokenizer, labels, length):
        self.model, self.tokenizer, self.labels, self.length = model, tokenizer, tuple(labels), length
        self._read = Batched(lambda ids: ops.softmax(ops.cast(model(ids), "float32")), model, length)

    @classmethod
    def from_run(cls, run):
        """Load the model of a `Run`."""
        return cls(run.load_model(), run.tokenizer, run.config.data.labels, run.config.data.max_tokens)

    @property
    def cut(self):
        """How many texts so far were too long to be read to their end."""
        return self._read.cut

    def probabilities(self, texts):
        """Return the probability of each class for each text: (N, C)."""
        rows = self._read(self.tokenizer.encode_batch(several(texts)))
        return np.array(rows).reshape(len(rows), len(self.labels))

    def classify(self, texts):
        """Return the likeliest class of a text and its probability, or a list of them for a list of texts."""
        if isinstance(texts, str):
            return self.classify([texts])[0]
        return [(self.labels[row.argmax()], float(row.max())) for row in self.probabilities(texts)]
