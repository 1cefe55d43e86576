"""Batches for `fit` and `evaluate` of any Keras model: texts of similar length together.

Axes: B batch, S source length, T target length.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from heedful import backend
from heedful.core.errors import InputError
from heedful.data.batches import BatchPlan
from heedful.data.corpus import Corpus
from heedful.data.encoded import encode
from heedful.data.examples import Examples, TranslationExamples
from heedful.data.tokenizer import Tokenizer

NOT_INPUTS = ("labels", "weights")


class FitBatches(keras.utils.PyDataset):
    """`Examples` as batches (inputs, labels) or (inputs, labels, weights); inputs are a dict of arrays.

    Each epoch has other batches than the one before, as in `heedful train`. With `workers` above 1 Keras prepares up to
    `max_queue_size` batches ahead in that many threads; with 1 it makes each batch between two steps. TensorFlow
    derives the shapes of all batches from the first two: use `as_dataset` there. Keras reports the mean of the losses
    of the batches, each of which is a mean over real labels.

    Args:
        examples: from `heedful.data`.
        one_pass: whether every epoch has every text exactly once, in the same batches, as for `evaluate`.
        sample_weights: whether to add the weights, 1 at real labels and 0 at padding. They are needed for models whose
            output has no Keras mask.
        workers, max_queue_size: see `keras.utils.PyDataset`.
    """

    def __init__(
        self,
        examples: Examples,
        one_pass: bool = False,
        sample_weights: bool = False,
        workers: int = 2,
        max_queue_size: int = 10,
    ):
        super().__init__(workers=workers, max_queue_size=max_queue_size)
        self.examples, self.sample_weights, self.epoch = examples, sample_weights, 0
        self._fixed_batches = list(examples.one_pass()) if one_pass else None
        self._count = (
            len(self._fixed_batches) if self._fixed_batches is not None else max(1, round(examples.batches_per_epoch))
        )

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self._count:
            raise IndexError(index)
        if self._fixed_batches is not None:
            return self._as_fit_item(self._fixed_batches[index])
        return self._as_fit_item(self.examples.batch(self.epoch * self._count + index))

    def on_epoch_end(self) -> None:
        self.epoch += 1

    def as_dataset(self) -> Any:
        """Return the batches as a `tf.data.Dataset`, whose arrays may have other lengths in each batch."""
        import tensorflow

        def epoch():
            for index in range(self._count):
                yield self[index]
            self.on_epoch_end()

        def signature(part: Any):
            if isinstance(part, dict):
                return {name: signature(array) for name, array in part.items()}
            return tensorflow.TensorSpec([None] * part.ndim, part.dtype)

        dataset = tensorflow.data.Dataset.from_generator(
            epoch, output_signature=tuple(signature(part) for part in self._as_fit_item(self.examples.batch(0)))
        )
        counted = dataset.apply(tensorflow.data.experimental.assert_cardinality(self._count))
        return counted.prefetch(tensorflow.data.AUTOTUNE)

    def _as_fit_item(self, batch: Mapping[str, np.ndarray]) -> tuple:
        inputs = {name: array for name, array in batch.items() if name not in NOT_INPUTS}
        if "target" in inputs:  # rows without a pair must be padding, also for models that derive a mask from it
            inputs["target"] = inputs["target"] * batch["weights"].any(axis=1, keepdims=True)
        return (inputs, batch["labels"], batch["weights"]) if self.sample_weights else (inputs, batch["labels"])


def pair_batches(
    pairs: Iterable[Any],
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer | None = None,
    *,
    columns: tuple[str, str] | None = None,
    max_tokens: int = 128,
    batch_sentences: int = 64,
    max_shapes: int = 8,
    seed: int = 0,
    **options: Any,
) -> Any:
    """Return batches of pairs for teacher forcing: ({"source": (B, S), "target": (B, T)}, labels (B, T)).

    Args:
        pairs: pairs of texts; or the paths of two parallel files; or rows with `columns`, as those of `datasets`.
        source_tokenizer, target_tokenizer: tokenizers of both sides; the target's is by default that of the source.
        columns: names of source and target in the rows, such as `("pt", "en")`; they may be inside "translation".
        max_tokens: longer pairs are left out.
        batch_sentences: pairs per batch B.
        max_shapes: maximum number of batch shapes; JAX compiles the model once for each.
        seed: seed of the order.
        options: keyword arguments of `FitBatches`.

    Returns:
        A `FitBatches`; where TensorFlow is the backend, a `tf.data.Dataset`.

    Raises:
        InputError: a file is missing, no pair fits, or rows do not have the columns.
    """
    corpus = _corpus(pairs, columns)
    encoded = encode(corpus, source_tokenizer, target_tokenizer or source_tokenizer, max_tokens)
    lengths = encoded.source.lengths + 1, encoded.target.lengths + 1
    # `batch_sentences` takes the place of `batch_tokens`
    plan = BatchPlan(*lengths, batch_tokens=1, batch_sentences=batch_sentences, max_shapes=max_shapes, seed=seed)
    batches = FitBatches(TranslationExamples(encoded, plan), **options)
    return batches.as_dataset() if backend.NAME == "tensorflow" else batches


def _corpus(pairs, columns: Sequence[str] | None) -> Corpus:
    if isinstance(pairs, Corpus):
        return pairs
    if columns:
        return Corpus.from_pairs([_columns_of(row, columns) for row in pairs], "rows")
    pairs = list(pairs)
    if any(isinstance(pair, Mapping) for pair in pairs):
        raise InputError("Rows need the names of their columns, such as columns=('pt', 'en').")
    if len(pairs) == 2 and all(isinstance(part, str | Path) for part in pairs):
        return Corpus.from_files(pairs)
    return Corpus.from_pairs(pairs, "pairs")


def _columns_of(row, columns):
    """Return source and target of a row; they may be inside its column "translation", as in data sets of the hub."""
    if not isinstance(row, Mapping):
        raise InputError(f"columns={tuple(columns)!r} needs rows with names, such as dictionaries, not {row!r}.")
    nested = row.get("translation")
    row = nested if isinstance(nested, Mapping) else row
    if missing := [column for column in columns if column not in row]:
        raise InputError(f"The rows have no column {missing[0]!r}.")
    return tuple(row[column] for column in columns)
