"""A `Reader` for each class of models."""

from collections.abc import Sequence
from typing import Any

from heedful.config import DecodeConfig
from heedful.core.errors import InputError
from heedful.core.special_tokens import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from heedful.inspection.reading import Reader, Variant
from heedful.models import CausalLM, Classifier, MaskedLM, Transformer

DEFAULT_TOKENS = 40  # tokens written after a prompt


class TranslationReader(Reader):
    """Reads a source, and a target that was written for it."""

    read_map, first_column, ends = "cross", 0, True

    @property
    def vocabularies(self) -> tuple[int, int]:
        return self.model.source_vocab_size, self.model.target_vocab_size

    def inputs(self, variant: Variant) -> dict[str, Any]:
        source, target = [*variant.source, END_ID], [START_ID, *variant.target]
        self._require_length(source, target)
        return {"source": source, "target": target}

    def lengths(self, variant: Variant) -> dict[str, tuple[int, int]]:
        source, target = (len(ids) for ids in self.inputs(variant).values())
        return {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}

    def last_row(self, variant: Variant) -> int:
        return len(variant.target)

    def written_limit(self, source: Sequence[int], decode: DecodeConfig) -> int:
        # The views read what was written after the start token.
        return min(decode.length_limit(len(source), self.model.max_length), self.model.max_length - 1)


class ContinuationReader(Reader):
    """Reads a prompt and its continuation."""

    read_map = "decoder"

    @property
    def ends(self) -> bool:  # type: ignore[override]
        return self.starts

    @property
    def first_column(self) -> int:  # type: ignore[override]
        return len(self._first)

    @property
    def _first(self):
        return [START_ID] if self.starts else []

    def inputs(self, variant: Variant) -> dict[str, Any]:
        before = [*self._first, *variant.source]
        if not before:
            raise InputError("This model continues text: give it some.")
        ids = [*before, *variant.target]
        self._require_length(ids if self.ends else ids[:-1])  # without an end, the last one need not be read
        return {"ids": ids[: self.model.max_length]}

    def rows(self, variant: Variant) -> list[int]:
        before = len(self._first) + len(variant.source)
        return list(range(before - 1, before - 1 + len(self.targets(variant))))

    def lengths(self, variant: Variant) -> dict[str, tuple[int, int]]:
        length = len(self._first) + len(variant.source) + len(variant.target) - (0 if self.ends else 1)
        return {"decoder": (length, length)}

    def last_row(self, variant: Variant) -> int:
        return len(self.inputs(variant)["ids"]) - 1

    def written_limit(self, source: Sequence[int], decode: DecodeConfig) -> int:
        room = self.model.max_length - len(self._first) - len(source) + (0 if self.ends else 1)
        return max(0, min(decode.max_length or DEFAULT_TOKENS, room))


class MaskReader(Reader):
    """Reads a text with masks, and a token for each of them."""

    def inputs(self, variant: Variant) -> dict[str, Any]:
        ids = [START_ID, *variant.source, END_ID]
        self._require_length(ids)
        return {"ids": ids, "places": self._places(variant)}

    def rows(self, variant: Variant) -> list[int]:
        return list(range(len(self._places(variant))))

    def readers(self, variant: Variant) -> list[list[int]]:
        return [[position] for position in self._places(variant)]

    def _places(self, variant):
        return [position for position, token in enumerate(variant.source, start=1) if token == self.mask]

    @property
    def forbidden(self) -> tuple[int, ...]:  # type: ignore[override]  # special tokens fill no gap
        return (PAD_ID, UNKNOWN_ID, START_ID, END_ID, *([] if self.mask is None else [self.mask]))


class ClassReader(Reader):
    """Reads a text, and its class."""

    @property
    def vocabularies(self) -> tuple[int, int]:
        return self.model.vocab_size, self.model.num_classes

    def inputs(self, variant: Variant) -> dict[str, Any]:
        ids = [START_ID, *variant.source, END_ID]
        self._require_length(ids)
        return {"ids": ids}

    def rows(self, variant: Variant) -> list[int]:
        return [0]

    def readers(self, variant: Variant) -> list[list[int]]:
        return [[0] if self.model.pooler else list(range(len(self.inputs(variant)["ids"])))]


READERS = {Transformer: TranslationReader, CausalLM: ContinuationReader, MaskedLM: MaskReader, Classifier: ClassReader}


def reader_of(model: Any, starts: bool = True, mask: int | None = None) -> Any:
    """Return the `Reader` for a model, see its class; `InputError` if there is none."""
    for kind, reader in READERS.items():
        if isinstance(model, kind):
            return reader(model, starts, mask)
    raise InputError(f"Models of type {type(model).__name__} cannot be inspected.")
