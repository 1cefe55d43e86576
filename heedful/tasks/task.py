"""The interface of tasks: everything in which they differ."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from heedful.config import PARTS, Config, DataConfig, DecodeConfig
from heedful.data.corpus import Corpus, hold_out, resolve_all
from heedful.data.examples import Examples
from heedful.data.tokenizer import Tokenizer
from heedful.errors import InputError

if TYPE_CHECKING:
    import keras

    from heedful.inference.predictor import Predictor
    from heedful.run import Run

SCORED_TOKENS = 4096  # maximum per scored batch: the last batch of each shape is filled up with padding

Report = Callable[[str], Any]
Corpora = Mapping[str, Corpus]  # by part: train, valid, test


class Task:
    """What a run is trained for. A task is stateless: everything it needs is an argument.

    Methods import heavy packages (Keras, sacrebleu) only when called, so that a config can be checked and a help text
    printed without them. Another package adds a task by a subclass and the entry point
    `heedful.tasks: NAME = "package.module:Class"`.
    """

    name: ClassVar[str]
    """As in the config: `task = NAME`."""
    tokenizer_files: ClassVar[tuple[str, ...]] = ("tokenizer.json",)
    """Files of the tokenizers in a run folder: one, or those of source and target."""
    selected_by: ClassVar[tuple[str, ...]] = ("loss", "accuracy")
    """Scores of a validation by which the best state can be selected (`train.select_by`)."""
    compared_by: ClassVar[tuple[str, ...]] = ("loss",)
    """Metrics by which runs are compared: the first that all runs have."""
    text_side: ClassVar[str] = "ids"
    """The array of a batch whose positions have the logits."""
    read_side: ClassVar[str] = "ids"
    """The array of a batch that the model reads first."""
    corpora: ClassVar[tuple[str, ...]] = ("files",)
    """Values that `data.corpus` may have."""
    starts_from: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Weights that `train.init_from` provides: their name prefixes in a masked language model, and here."""
    writes: ClassVar[bool] = False
    """Whether the model generates text token by token, so that the self-check tests its search."""
    decodes_to_score: ClassVar[bool] = False
    """Whether `evaluate` decodes text, and so takes decoding settings."""
    ensembles: ClassVar[bool] = False
    """Whether several models with the same vocabularies can form an ensemble."""
    whole_texts: ClassVar[bool] = True
    """Whether an example is a whole text, not a part of one."""
    scored_by_token: ClassVar[bool] = False
    """Whether every score depends on the tokens, so that runs with different vocabularies cannot be compared."""
    translates: ClassVar[bool] = False
    """Whether a server offers the run as a translator."""
    embeds: ClassVar[bool] = False
    """Whether the model is an encoder, so that a server offers vectors of texts."""
    hub_task: ClassVar[str] = "other"
    """The name of the task on the Hugging Face hub, and of the pipeline of `transformers`."""
    page: ClassVar[str | None] = None
    """The kind of network by which `heedful page` computes: a name in page/web/engine/networks.js. None: no page."""
    all_frozen: ClassVar[bool] = False
    """Whether `train.freeze` freezes every block, and with it attention dropout."""

    # The config

    def check_config(self, config: Config) -> None:
        """Refuse a config that makes no sense for the task.

        Raises:
            InputError: the message says which settings, and why.
        """

    def default_selection(self, config: Config) -> str | None:
        """Return the score by which the best state is selected if the config sets none; None: `prepare` decides."""
        return "loss"

    def limits_length(self, config: Config) -> bool:
        """Return whether no text may be longer than `model.max_length`."""
        return True

    def plan_updates(self, config: Config, other: Config) -> Config:
        """Return a config with everything that depends on the number of updates fixed as in the config `other`."""
        return config

    # The text

    def text_layout(self, data: DataConfig) -> str:
        """Return how the files of a `DataConfig` are laid out: `pairs`, `labelled`, `lines` or `documents`."""
        return "labelled" if data.documents == "labelled" else "lines" if data.documents == "lines" else "documents"

    def open_text(self, config: Config, files: Sequence[str], origin: str = "") -> Corpus:
        """Return the text in `files` as a corpus.

        Raises:
            InputError: files are missing; the message names them, and their `origin`, where such text comes from.
        """
        raise NotImplementedError

    def open_scored_text(self, config: Config, files: Sequence[str]) -> Corpus:
        """Return the text in files that the user names for `evaluate`; errors as in `open_text`."""
        return self.open_text(config, files)

    def file_groups(self, files: Sequence[str], origin: str = "") -> list[tuple[Path, ...]]:
        """Return the files of a text, those together that hold the same items; raise `InputError` as `open_text`."""
        return [(path,) for path in resolve_all(files, origin)]

    def find_corpora(self, config: Config) -> dict[str, Corpus]:
        """Return the corpora of a run by part: train, valid, and test where there is one.

        Raises:
            InputError: files are missing, or the config names none for a required part.
        """
        files = {part: getattr(config.data, part) for part in PARTS}
        found = {part: self.open_text(config, names, config.data.origin) for part, names in files.items() if names}
        if "train" not in found:
            raise InputError("data.train must name text files.")
        if "valid" in found:
            return found
        if not config.data.held_out:
            raise InputError("data.valid must name text files, or data.held_out a share of the training text.")
        train, valid = hold_out(found["train"], config.data.held_out)
        return {**found, "train": train, "valid": valid}

    def text_to_score(self, corpora: Corpora) -> Corpus:
        """Return the corpus that `evaluate` scores if no files are given."""
        if "test" not in corpora:
            raise InputError("This run names no test text: give the files to score it on.")
        return corpora["test"]

    def text_of(self, item: Any) -> str:
        """Return what a model reads of an item of a corpus, as an example to begin with."""
        return item.split("\n", 1)[0]

    def pair_of(self, item: Any) -> tuple[str, str] | None:
        """Return what a model reads of an item of a corpus, and what it should answer; None if that is no text."""
        return None

    def starts_texts(self, config: Config) -> bool:
        """Return whether a language model reads a start token before each text."""
        return False

    def prepare(self, config: Config, corpora: Corpora) -> tuple[Config, Sequence[Tokenizer]]:
        """Return the config, completed from the text, and the tokenizers trained on it: one, or one per side."""
        raise NotImplementedError

    # Examples

    def training_examples(self, run: "Run", corpora: Corpora, report: Report) -> Examples:
        """Return the training examples, in the form of `PlannedExamples`; report which text was left out."""
        raise NotImplementedError

    def scored_examples(self, run: "Run", corpora: Corpora, part: str) -> Examples:
        """Return the examples to score a held-out part token by token; raise `InputError` if it is unusable."""
        raise NotImplementedError

    # The model and its uses

    def build_model(self, run: "Run", **options) -> "keras.Model":
        """Return a fresh model for a run; `options` are `name`, `dtype` and those of its architecture."""
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
    ) -> "Validator":
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
        """Change the trained weights in the run folder, if the task has a reason; return whether it has done so.

        Args:
            run: a `Run`, trained.
            corpora: by part.
            predictor: with its trained model.
            report: called with each line for the user.
        """
        return False

    def scored_settings(self, config: Config) -> dict[str, Any]:
        """Return the settings of a config that determine which predictions on a text are scored."""
        return {}

    # The self-check

    def random_batch(self, run: "Run", random: np.random.Generator, rows: int, length: int) -> dict[str, np.ndarray]:
        """Return a batch of random tokens, without weights, in the form of the task's examples."""
        raise NotImplementedError

    def embeddings(self, model: "keras.Model") -> "list[keras.layers.Layer]":
        """Return the embedding layers for a model's input ids."""
        return [model.embedding]

    def wrong_labels(self, run: "Run", batch: Mapping[str, np.ndarray]) -> float:
        """Return the share of a batch's labels that are not what the model should predict."""
        raise NotImplementedError

    def probe(self, run: "Run", model: "keras.Model", decode: DecodeConfig, batch: Mapping[str, np.ndarray]) -> "Probe":
        """Return a `Probe` of the search, for a task that `writes`."""
        raise NotImplementedError


class Probe:
    """A search over the examples of a batch, and the inputs to score its results in one forward pass.

    Args:
        search: maps sources (and `limits`) to candidates, like a `BatchSearch`; it never writes its `forbidden` ids.
        sources: lists of ids.
        limits: maximum number of tokens to write for each source.
    """

    def __init__(self, search: Callable[..., Any], sources: Sequence[list[int]], limits: Sequence[int]):
        self.search, self.sources, self.limits = search, sources, limits

    def first_scored(self, row: int) -> int:
        """Return the position whose logits belong to the first token written for a source."""
        raise NotImplementedError

    def write_row(self, inputs: dict[str, np.ndarray], row: int, written: Sequence[int]) -> None:
        """Put a source and the tokens written for it into a row of inputs (arrays of zeros, by name)."""
        raise NotImplementedError


class Validator:
    """Scores a model in training.

    Attributes:
        predictor: the `Predictor` that `Task.evaluate` takes, with the model in training.
    """

    predictor: Any = None

    def __call__(self) -> dict[str, Any]:
        """Return the current scores of the model, and a list of `Sample` to show, `samples`."""
        raise NotImplementedError

    def refresh(self) -> None:
        """Update the predictor to the model's current weights."""
        self.predictor.refresh()
