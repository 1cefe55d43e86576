"""How a model reads given texts: the probability of each token, and every attention map, with any heads off.

Axes: B variants in a batch, R targets of a variant, S source length, T length of the text that is read, V vocabulary,
N heads, P attention layers.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from heedful import backend
from heedful.config import DecodeConfig
from heedful.core.errors import InputError
from heedful.core.special_tokens import END_ID, PAD_ID
from heedful.inspection.head_importance import attention_layers
from heedful.layers.trace import Trace, path_in_model

Head = tuple[str, int, int]  # kind (`encoder`, `decoder`, `cross`), layer, head, counted from 0
MIN_PADDED_LENGTH = 16
BATCH_SIZES = (1, 8, 32)  # sizes of batches: one program each


class Variant(NamedTuple):
    """A source and a target that a model reads; both are lists of ids without start and end tokens."""

    source: Sequence[int]
    """The prompt of a language model; for a masked model a text with mask tokens; for a classifier its text."""
    target: Sequence[int]
    """What is written for it; for a masked model a token for each mask; for a classifier a class."""
    off: frozenset[Head] = frozenset()
    """Heads that are switched off."""


class Look(NamedTuple):
    """What a model says about a variant."""

    log_probabilities: np.ndarray
    """(R, V), in nats."""
    attention: dict[str, list[np.ndarray]]
    """The maps (N, T, S) of each layer by kind."""


class Reader:
    """Reads variants with a model; one class for each class of models, see `readers.reader_of`.

    Args:
        model: a trained model.
        starts: whether texts begin with the start token; only for a language model.
        mask: id of the mask token; only for a masked language model.
    """

    read_map = "encoder"
    """Kind of attention that shows what the model reads for a target."""
    first_column = 1
    """Column of that map for the first token of the source."""
    ends = False
    """Whether a target has an end token, which is scored too."""
    forbidden: tuple[int, ...] = ()
    """Ids that are never a rival of a target."""

    def __init__(self, model: Any, starts: bool = True, mask: int | None = None):
        self.model, self.starts, self.mask = model, starts, mask
        self.layers = attention_layers(model)
        self._heads = {
            (kind, layer): number
            for number, (kind, layer) in enumerate(
                (k, i) for k, layers in self.layers.items() for i in range(len(layers))
            )
        }
        self._paths = [path_in_model(layer) for layers in self.layers.values() for layer in layers]
        options = {"model": model, "brief": True}
        self._look = backend.compiled(self._look_program, **options)
        self._score = backend.compiled(self._score_program, **options)
        self._next = backend.compiled(self._next_program, **options)

    # What differs between the classes

    @property
    def vocabularies(self) -> tuple[int, int]:
        """The number of ids of a source, and of a target."""
        return self.model.vocab_size, self.model.vocab_size

    def inputs(self, variant: Variant) -> dict[str, list[int]]:
        """Return the ids that the model reads, by input; `InputError` if it cannot read as many."""
        raise NotImplementedError

    def rows(self, variant: Variant) -> list[int]:
        """Return for each target the row of `Model.features` from which it is predicted."""
        return list(range(len(self.targets(variant))))

    def readers(self, variant: Variant) -> list[list[int]]:
        """Return for each target the rows of `read_map` in which the model reads for it."""
        return [[row] for row in self.rows(variant)]

    def targets(self, variant: Variant) -> list[int]:
        """Return the ids that are scored: the target, with its end token if it has one."""
        return [*variant.target, END_ID] if self.ends else list(variant.target)

    def lengths(self, variant: Variant) -> dict[str, tuple[int, int]]:
        """Return the size (T, S) of the maps of each kind."""
        length = len(self.inputs(variant)["ids"])
        return dict.fromkeys(self.layers, (length, length))

    def written_limit(self, source: Sequence[int], decode: DecodeConfig) -> int:
        """Return how many tokens may be written for a source; 0: the model does not write."""
        return 0

    def _require_length(self, *texts: Sequence[int]) -> None:
        if max(map(len, texts)) > self.model.max_length:
            raise InputError(f"The model reads {self.model.max_length} tokens at most.")

    # What all have in common

    def look(self, variant: Variant) -> Look:
        """Return the log-probabilities and the attention of one variant."""
        log_probabilities, records = self._look(*self._arrays([variant]), self._padded_array([self.rows(variant)]))
        maps_of: dict[str, list[np.ndarray]] = {}
        sizes, count = self.lengths(variant), len(self.targets(variant))
        for kind, layers in self.layers.items():
            rows, columns = sizes[kind]
            maps = [backend.to_numpy(records[path_in_model(layer)])[0] for layer in layers]
            maps_of[kind] = [np.asarray(each[:, :rows, :columns], np.float32) for each in maps]
        return Look(np.asarray(backend.to_numpy(log_probabilities))[0, :count], maps_of)

    def scores(self, variants: Sequence[Variant]) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the number of each variant with the log-probabilities of its targets, a batch at a time."""
        for numbers in self._batches(variants):
            batch = [variants[number] for number in numbers]
            full = _padded_batch(batch)
            rows, targets = (
                self._padded_array([numbers_of(one) for one in full]) for numbers_of in (self.rows, self.targets)
            )
            scores = np.asarray(backend.to_numpy(self._score(*self._arrays(full), rows, targets)))
            for row, number in enumerate(numbers):
                yield number, scores[row, : len(self.targets(batch[row]))]

    def next_scores(self, variants: Sequence[Variant]) -> np.ndarray:
        """Return for each variant the log-probabilities (V,) of the token after its target: (B, V)."""
        full = _padded_batch(variants)
        last = np.array([[self.last_row(variant)] for variant in full], np.int32)
        return np.asarray(backend.to_numpy(self._next(*self._arrays(full), last)))[: len(variants)]

    def last_row(self, variant: Variant) -> int:
        """Return the row of `Model.features` from which the token after a target is predicted."""
        raise InputError("This model writes no text.")

    def _batches(self, variants):
        """Yield the numbers of variants whose inputs have the same padded lengths, at most a batch at a time."""
        by_shape: dict[Any, list[int]] = {}
        for number, variant in enumerate(variants):
            shape = tuple(self._padded(len(ids)) for ids in self.inputs(variant).values())
            by_shape.setdefault(shape, []).append(number)
        for numbers in by_shape.values():
            for start in range(0, len(numbers), BATCH_SIZES[-1]):
                yield numbers[start : start + BATCH_SIZES[-1]]

    def _arrays(self, variants):
        """Return the inputs of variants, and the switches (P, B, N) of all heads."""
        read = [self.inputs(variant) for variant in variants]
        inputs = {name: self._padded_array([ids[name] for ids in read]) for name in read[0]}
        heads = max(layer.num_heads for layers in self.layers.values() for layer in layers)
        switches = np.ones((len(self._paths), len(variants), heads), np.float32)
        for number, variant in enumerate(variants):
            for kind, layer, head in variant.off:
                switches[self._heads[kind, layer], number, head] = 0
        return inputs, switches

    def _padded_array(self, lists):
        """Return lists of numbers as an array, padded."""
        filled = np.full((len(lists), self._padded(max(map(len, lists)))), PAD_ID, np.int32)
        for number, ids in enumerate(lists):
            filled[number, : len(ids)] = ids
        return filled

    def _padded(self, length):
        """Return the length to which an input is padded: there is a program for each.

        Without a causal mask a model would read the padding of its target.
        """
        if not self.model.architecture.causal_mask:
            return max(length, 1)
        return min(
            max(MIN_PADDED_LENGTH, 1 << math.ceil(math.log2(max(length, 1)))), max(length, self.model.max_length)
        )

    def _log_probabilities(self, inputs, switches, rows, trace=None):
        """Return log-probabilities (B, R, V) of the tokens that are predicted from `rows` (B, R)."""
        trace = trace or Trace(())
        trace.switches = {path: switches[number] for number, path in enumerate(self._paths)}
        features = ops.take_along_axis(self.model.features(inputs, trace=trace), rows[..., None], axis=1)
        return ops.log_softmax(ops.cast(self.model.output_projection.project(features), "float32"))

    def _look_program(self, inputs, switches, rows):
        trace = Trace()
        return self._log_probabilities(inputs, switches, rows, trace), trace.records

    def _score_program(self, inputs, switches, rows, targets):
        scores = self._log_probabilities(inputs, switches, rows)
        return ops.take_along_axis(scores, targets[..., None], axis=-1)[..., 0]

    def _next_program(self, inputs, switches, rows):
        return self._log_probabilities(inputs, switches, rows)[:, 0]


def _padded_batch(variants):
    """Return variants with the last one repeated, so that there are as many as a batch has."""
    size = next(size for size in BATCH_SIZES if size >= len(variants))
    return [*variants, *[variants[-1]] * (size - len(variants))]
