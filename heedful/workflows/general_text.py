"""General text beside the text of a training: mixed into its batches, and validated, so that little is forgotten."""

from typing import TYPE_CHECKING, Any

from heedful.core.progress import Report
from heedful.data.examples import Examples
from heedful.data.mixture import MixedExamples
from heedful.runs.run import Run
from heedful.runs.training_log import Sample
from heedful.tasks.task import Corpora, Validator
from heedful.training.selection import GENERAL

if TYPE_CHECKING:
    import keras


class GeneralText:
    """The general text of a run.

    Args:
        run: a `Run`; `data.general` and `data.general_valid` of its config name the text.
        corpora: the general text by part: train if it is mixed in, and valid.
        report: called with each line for the user.
    """

    def __init__(self, run: Run, corpora: Corpora, report: Report):
        self.run, self.corpora, self.task = run, corpora, run.task
        self.share = run.config.data.general_share if "train" in corpora else 0.0
        self.examples: Examples | None = None
        if self.share:
            self.examples = self.task.training_examples(run, corpora, lambda line: report(f"general {line}"))
        self.scored = {"valid": self.task.scored_examples(run, corpora, "valid")}

    @classmethod
    def of(cls, run: Run, report: Report) -> "GeneralText":
        """Open the general text that the config of a run names."""
        data = run.config.data
        parts = {"train": data.general, "valid": data.general_valid}
        opened = {part: run.task.open_text(run.config, files, data.origin) for part, files in parts.items() if files}
        return cls(run, opened, report)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the text that is trained on."""
        return self.corpora["train"].fingerprint if self.examples else ""

    def mixed_into(self, own: Examples) -> Examples:
        """Return training examples with this text mixed in."""
        return MixedExamples(own, self.examples, self.share) if self.examples else own

    def validated_with(self, own: Validator, model: "keras.Model") -> Validator:
        """Return a `Validator` with the scores of `own`, and those on this text, whose names begin with `general_`."""
        return _BothValidator(own, self.task.validator(self.run, model, self.corpora, self.scored))


class _BothValidator(Validator):
    def __init__(self, own, general):
        self.own, self.general, self.predictor = own, general, own.predictor

    def __call__(self) -> dict[str, Any]:
        return self.own() | {f"{GENERAL}{name}": score for name, score in self.general().items()}

    def samples(self) -> list[Sample]:
        return self.own.samples()

    def refresh(self) -> None:
        self.own.refresh()
        self.general.refresh()
