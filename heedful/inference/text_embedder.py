"""Text embedding: an encoder with its tokenizer.

Axes: N texts, D d_model.
"""

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from keras import ops

from heedful.backend import Tensor
from heedful.config import DecodeConfig
from heedful.core.errors import InputError
from heedful.core.line_stream import line_batches
from heedful.core.validation import require_texts
from heedful.data.tokenizer import Tokenizer
from heedful.inference.batching import BatchedProgram
from heedful.inference.predictor import Predictor, Warn, as_array
from heedful.models.masked_lm import POOLINGS
from heedful.runs.run import Run

TEXTS_AT_ONCE = 1024  # texts read at a time


class TextEmbedder(Predictor):
    """Turns texts into vectors.

    Args:
        model: a `MaskedLM` or `Classifier`.
        tokenizer: the one it was trained with.
        pooling: the default of `embed`.
        unit_vectors: whether vectors are scaled to length 1.
    """

    def __init__(self, model: Any, tokenizer: Tokenizer, pooling: str = "mean", unit_vectors: bool = False):
        self.model, self.tokenizer, self.pooling, self.unit_vectors = model, tokenizer, pooling, unit_vectors
        self._program = functools.cache(self._new_program)

    @classmethod
    def from_run(cls, run: Run, decode: DecodeConfig | None = None) -> "TextEmbedder":
        return cls.for_model(run.load_model(), run)

    @classmethod
    def for_model(cls, model: Any, run: Run) -> "TextEmbedder":
        """Return the embedder of a model of a `Run` that is loaded already."""
        return cls(model, run.tokenizer, run.config.model.vector_pooling, run.config.model.unit_vectors)

    def predict_stream(
        self, texts: Iterable[str], warn: Warn | None = None, pooling: str | None = None, **options: Any
    ) -> Iterator[np.ndarray]:
        """Yield the vector (D,) of each text. For `pooling` see `embed`."""
        first = 1
        for window in line_batches(iter(texts), TEXTS_AT_ONCE):
            yield from self.embed(window, pooling, warn, first)
            first += len(window)

    def embed(
        self, texts: Iterable[str], pooling: str | None = None, warn: Warn | None = None, first: int = 1
    ) -> np.ndarray:
        """Return one vector per text: (N, D).

        Args:
            texts: the N texts.
            pooling: `mean`, the mean of the vectors of all tokens; `first`, the vector of the start token; `max`, the
                largest value of each component. None: as the model was trained for.
            warn: called with a message for each text that is longer than the model reads.
            first: number of the first text, in warnings.
        """
        pooling = pooling or self.pooling
        if pooling not in POOLINGS:
            raise InputError(f"Unknown pooling {pooling!r}: choose one of {', '.join(POOLINGS)}.")
        rows = self._program(pooling)(self.tokenizer.encode_batch(require_texts(texts)), warn, first)
        return as_array(rows, self.model.d_model)

    def _new_program(self, pooling: str) -> BatchedProgram:
        model = self.model

        def pooled(ids: Tensor) -> Tensor:
            vectors = model.pool(ids, ops.cast(model.encode(ids), "float32"), pooling)
            return ops.normalize(vectors, axis=-1) if self.unit_vectors else vectors

        return BatchedProgram(pooled, model, model.max_length)
