"""The model of a task, and what it is used for: to predict, to validate, to score."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from heedful.config import Config, DecodeConfig
from heedful.core.progress import Report
from heedful.data.corpus import Corpus
from heedful.data.examples import Examples
from heedful.tasks.task_text import Corpora
from heedful.training.validator import Validator

if TYPE_CHECKING:
    import keras

    from heedful.inference.predictor import Predictor
    from heedful.runs.run import Run


class TaskModel:
    """From examples to a model, and from a model to predictions and scores."""

    starts_from: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Pairs of name prefixes: of weights of the masked language model that `train.init_from` names, and of the weights
    here that they initialise."""
    all_frozen: ClassVar[bool] = False
    """Whether `train.freeze` freezes every block, and with it attention dropout."""
    writes: ClassVar[bool] = False
    """Whether the model generates text token by token, so that the self-check tests its search."""
    embeds: ClassVar[bool] = False
    """Whether the model is an encoder, so that a server offers vectors of texts."""
    classifies: ClassVar[bool] = False
    """Whether the model predicts the class of a text, so that a server answers with the probabilities of classes."""
    ensembles: ClassVar[bool] = False
    """Whether several models with the same vocabularies can form an ensemble."""
    decodes_to_score: ClassVar[bool] = False
    """Whether `evaluate` decodes text, and so takes decoding settings."""
    compared_by: ClassVar[tuple[str, ...]] = ("loss",)
    """Metrics by which runs are compared: the first that all runs have."""
    scored_by_token: ClassVar[bool] = False
    """Whether every score depends on the tokens, so that runs with different vocabularies cannot be compared."""
    hub_task: ClassVar[str] = "other"
    """The name of the task on the Hugging Face hub, and of the pipeline of `transformers`."""
    page: ClassVar[str | None] = None
    """The kind of network by which `heedful page` computes: in `web/engine/networks.js`. None: no page."""

    def build_model(self, run: "Run", **options: Any) -> "keras.Model":
        """Return a fresh model for a run; `options` are `name`, `dtype` and options of the architecture."""
        raise NotImplementedError

    def vocabulary_sizes(self, model: "keras.Model") -> list[int]:
        """Return the sizes of the vocabularies of a model, in the order of `tokenizer_files`."""
        return [model.vocab_size]

    def predictor(self, runs: "Sequence[Run]", decode: DecodeConfig | None = None) -> "Predictor":
        """Return the `Predictor` that does the task with the models of one run or several.

        Args:
            runs: `Run`s; several for a task with `ensembles`.
            decode: a `DecodeConfig` that replaces that of the run, for a task that `writes`.
        """
        raise NotImplementedError

    def validator(
        self, run: "Run", model: "keras.Model", corpora: Corpora, scored: Mapping[str, Examples]
    ) -> Validator:
        """Return a `Validator` of a model in training.

        Args:
            run: a `Run`.
            model: its model.
            corpora: by part.
            scored: the `scored_examples`, by part.
        """
        raise NotImplementedError

    def evaluate(self, run: "Run", corpus: Corpus, predictor: Any = None) -> dict[str, Any]:
        """Score a run on a text; keep the result in its scores.json, and return it.

        Args:
            run: a `Run`.
            corpus: the text, from `open_text`.
            predictor: from the method `predictor`; None: one with the trained model of the run.
        """
        raise NotImplementedError

    def describe(self, scores: Mapping[str, Any]) -> str:
        """Return scores as one line of text."""
        raise NotImplementedError

    def details(self, scores: Mapping[str, Any]) -> list[str]:
        """Return lines with more about scores, for `heedful evaluate`."""
        return []

    def finish_training(self, run: "Run", corpora: Corpora, predictor: Any, report: Report) -> bool:
        """Change the trained weights in the run folder if the task does so, as for calibration; return whether it did.

        Args:
            run: a `Run`, trained.
            corpora: by part.
            predictor: with its trained model.
            report: called with each line for the user.
        """
        return False

    def scored_settings(self, config: Config) -> dict[str, Any]:
        """Return the settings of a config that decide which positions of a text are scored."""
        return {}
