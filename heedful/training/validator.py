"""What a training asks of its validation."""

from typing import Any

from heedful.runs.training_log import Sample


class Validator:
    """Scores a model in training.

    Attributes:
        predictor: the `Predictor` that `Task.evaluate` takes, with the model in training.
    """

    predictor: Any = None

    def __call__(self) -> dict[str, Any]:
        """Return the current scores of the model by name."""
        raise NotImplementedError

    def samples(self) -> list[Sample]:
        """Return some of its results to show, after a call."""
        return []

    def refresh(self) -> None:
        """Update the predictor to the model's current weights."""
        self.predictor.refresh()
