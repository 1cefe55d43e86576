"""The interface of all predictors, and the types of their results."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from heedful.config import DecodeConfig
from heedful.errors import InputError
from heedful.validation import require_texts

Warn = Callable[[str], Any]


class ScoredText(NamedTuple):
    """A text that a model has written."""

    text: str
    score: float
    """Log-probability in nats, normalised by length as the settings say; 0 where no score was asked for."""


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


class Alternative(NamedTuple):
    """Another next token of a translation."""

    token: str
    log_probability: float
    """In nats."""
    text: str
    """The whole translation that begins with this token."""


class Predictor:
    """Predicts something for each text. It is complete when it is constructed, and threads may share it.

    A subclass implements `predict_stream`.

    Attributes:
        model: the trained model, or an `Ensemble`.
    """

    model: Any

    @classmethod
    def from_run(cls, run, decode: DecodeConfig | None = None) -> "Predictor":
        """Load the model of a `Run`; `decode` replaces its settings, for a predictor that writes text."""
        raise NotImplementedError

    def predict(self, texts: Iterable[str], warn: Warn | None = None, **options) -> list[Any]:
        """Return the result for each text.

        Args:
            texts: any number of texts, not a single one.
            warn: called with a message for each text of which the model reads only a part.
            options: of the predictor, for this call.

        Raises:
            InputError: a single text, or options that do not fit.
        """
        return list(self.predict_stream(require_texts(texts), warn, **options))

    def predict_stream(self, texts: Iterable[str], warn: Warn | None = None, **options) -> Iterator[Any]:
        """Yield the result for each text as soon as it is there. Arguments and errors as of `predict`."""
        raise NotImplementedError

    def refresh(self) -> None:
        """Use the weights that the model has now; for a model that is still trained."""


class TooLong(InputError):
    """A text has more tokens than the model reads."""


def as_array(rows: list, *shape: int) -> np.ndarray:
    """Return rows as an array (N, *shape), also where there are none."""
    return np.array(rows).reshape(len(rows), *shape)
