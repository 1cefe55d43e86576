"""The interface of all predictors, and the types of their results."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from heedful.config import DecodeConfig
from heedful.core.errors import InputError, InputWarning, counted
from heedful.core.validation import require_texts
from heedful.data.normalization import normalized
from heedful.data.tokenizer import Tokenizer
from heedful.runs.run import Run

Warn = Callable[[str], Any]


class ScoredText(NamedTuple):
    """A text that a model has written."""

    text: str
    score: float
    """Log-probability in nats, normalised by length as configured; 0 if no score was requested."""


class ScoredToken(NamedTuple):
    """A token, as the vocabulary spells it, and its probability."""

    token: str
    probability: float


class FilledText(NamedTuple):
    """A text whose masks are filled."""

    text: str
    gaps: list[list[ScoredToken]]
    """For each mask the candidates, most likely first."""


class ScoredLabel(NamedTuple):
    """The class of a text, and its probability."""

    label: str
    probability: float


class WordEffect(NamedTuple):
    """A word of a text, and how much it matters."""

    word: str
    effect: float
    """Probability of the class with the word, less that without it."""


class Alternative(NamedTuple):
    """Another next token of a translation."""

    token: str
    log_probability: float
    """In nats."""
    text: str
    """The whole translation that begins with this token."""


class Predictor:
    """Base class of predictors, which compute a result for each text. Threads may share a predictor.

    A subclass implements `predict_stream`.

    Attributes:
        model: the trained model, or an `Ensemble`.
    """

    model: Any

    @classmethod
    def from_run(cls, run: Run, decode: DecodeConfig | None = None) -> "Predictor":
        """Load the model of a `Run`; `decode` replaces its settings, for a predictor that generates text."""
        raise NotImplementedError

    def predict(self, texts: Iterable[str], warn: Warn | None = None, **options: Any) -> list[Any]:
        """Return the result for each text.

        Args:
            texts: an iterable of texts, not a single string.
            warn: called with a message for each text that is truncated.
            options: options of the predictor, for this call.

        Raises:
            InputError: `texts` is a single string, or an option is not valid.
        """
        return list(self.predict_stream(require_texts(texts), warn, **options))

    def predict_stream(self, texts: Iterable[str], warn: Warn | None = None, **options: Any) -> Iterator[Any]:
        """Yield the result for each text as soon as it is available. Arguments and errors as in `predict`."""
        raise NotImplementedError

    def refresh(self) -> None:
        """Use the current weights of the model, for a model that is still being trained."""


def require_vocabulary(model: Any, **tokenizers: Tokenizer) -> None:
    """Raise `ValueError` if a model, or one of an `Ensemble`, has no such vocabulary, or one too small for a tokenizer.

    Args:
        model: the model.
        tokenizers: by the name of the model's vocabulary size, such as `source_vocab_size`.
    """
    for one in getattr(model, "models", [model]):
        for name, tokenizer in tokenizers.items():
            size = getattr(one, name, None)
            if size is None:
                raise ValueError(f"A {type(one).__name__} has no {name}: this predictor is for other models.")
            if len(tokenizer) > size:
                raise ValueError(f"The tokenizer has {len(tokenizer):,} tokens, but {name} of the model is {size:,}.")


def warn_of_other_forms(tokenizer: Tokenizer, texts: Sequence[str], ids: Sequence[Sequence[int]]) -> None:
    """Warn, once, if a tokenizer that folds nothing gives a text other `ids` than the same text in its usual form."""
    if tokenizer.normalization != "none":
        return
    unusual = [(form, own) for text, own in zip(texts, ids, strict=True) if (form := normalized(text, "nfc")) != text]
    if any(tokenizer.encode(form) != list(own) for form, own in unusual):
        warnings.warn(
            "A text has decomposed letters, or double, no-break or trailing spaces, and this model reads them as other "
            "tokens than the usual form: its tokenizer does not fold them (tokenizer.normalize = 'none').",
            InputWarning, stacklevel=2,
        )  # fmt: skip


def warn_of_cut_texts(messages: Sequence[str], warn: Warn | None) -> None:
    """Pass on a message for each text that is truncated; without `warn`, the first one as an `InputWarning`."""
    if warn:
        for message in messages:
            warn(message)
    elif messages:
        others = len(messages) - 1
        also = f" So {'is' if others == 1 else 'are'} {counted(others, 'other text')}." if others else ""
        warnings.warn(messages[0] + also, InputWarning, stacklevel=2)


def discard_warning(message: str) -> None:
    """A `warn` for callers that report truncated texts in another way, or not again."""


class TooLong(InputError):
    """A text has more tokens than the model reads."""


def as_array(rows: list, *shape: int) -> np.ndarray:
    """Return rows as an array (N, *shape), even if there are none."""
    return np.array(rows).reshape(len(rows), *shape)
