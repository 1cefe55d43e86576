"""What differs between tasks: a `Task` names it once, and the rest of heedful asks the task."""

import dataclasses
from typing import ClassVar

from heedful.config import PARTS
from heedful.data.corpus import hold_out
from heedful.errors import InputError

SCORED_TOKENS = 4096  # most tokens of a batch that is scored: the last batch of each shape is filled up with padding


class Task:
    """What a run is trained for. A task has no state: what it needs comes as arguments.

    Methods import what is heavy (Keras, sacrebleu) when they are called, so that a config can be checked, and a help
    text printed, without it. Another package adds a task with a subclass and the entry point
    `heedful.tasks: NAME = "package.module:Class"`.
    """

    name: ClassVar[str]
    """As in the config: `task = NAME`."""
    tokenizer_files: ClassVar[tuple[str, ...]] = ("tokenizer.json",)
    """Files of the tokenizers in a run folder: one, or those of source and target."""
    selected_by: ClassVar[tuple[str, ...]] = ("loss", "accuracy")
    """Scores of a validation by which the best state can be selected (`train.best_by`)."""
    compared_by: ClassVar[tuple[str, ...]] = ("loss",)
    """Metrics by which runs are compared: the first that all runs have."""
    text_side: ClassVar[str] = "ids"
    """The array of a batch to whose positions the logits belong."""
    read_side: ClassVar[str] = "ids"
    """The array of a batch that the model reads first."""
    corpora: ClassVar[tuple[str, ...]] = ("files",)
    """Values that `data.corpus` may have."""
    starts_from: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Weights that `train.start_from` provides: beginnings of their names in a masked language model, and here."""
    writes: ClassVar[bool] = False
    """Whether the model writes text token by token, so that a search can be checked."""
    decodes_to_score: ClassVar[bool] = False
    """Whether `evaluate` decodes text, and so takes settings of decoding."""
    ensembles: ClassVar[bool] = False
    """Whether several models with the same vocabularies can vote on each token."""
    whole_texts: ClassVar[bool] = True
    """Whether an example is a whole text, and not cut out of one."""
    scored_by_token: ClassVar[bool] = False
    """Whether every score depends on the tokens, so that runs with other vocabularies cannot be compared."""
    all_frozen: ClassVar[bool] = False
    """Whether `train.freeze` freezes every block, and with it the dropout of attention."""

    # The config

    def check_config(self, config):
        """Refuse a config that makes no sense for the task.

        Raises:
            InputError: says which settings, and why.
        """

    def default_selection(self, config):
        """Return the score by which the best state is selected where the config does not say."""
        return "loss"

    def limits_length(self, config):
        """Return whether no text may be longer than `model.max_length`."""
        return True

    def plan_updates(self, config, made):
        """Return a config with what depends on the number of updates fixed, as in the config `made`."""
        return config

    # The text

    def text_layout(self, data):
        """Return how the files of a `DataConfig` are laid out: `pairs`, `labelled`, `lines` or `documents`."""
        return "labelled" if data.documents == "labelled" else "lines" if data.documents == "lines" else "documents"

    def open_text(self, config, files, origin=""):
        """Return the text in `files` as a corpus.

        Raises:
            InputError: files are missing; names them, and their `origin`, where such text comes from.
        """
        raise NotImplementedError

    def find_corpora(self, config):
        """Return the corpora of a run by part: train, valid, and test where there is one.

        Raises:
            InputError: files are missing, or named for no part that is required.
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

    def text_to_score(self, corpora):
        """Return the corpus that `evaluate` scores where no files are given."""
        if "test" not in corpora:
            raise InputError("This run names no test text: give the files to score it on.")
        return corpora["test"]

    def prepare(self, config, corpora):
        """Return the config with what only the text can tell, and the tokenizers learned from it: one, or two sides."""
        raise NotImplementedError

    # Examples

    def training_examples(self, run, corpora, report):
        """Return what to train on, in the form of `PlannedExamples`; report what of the text was left out."""
        raise NotImplementedError

    def scored_examples(self, run, corpora, part):
        """Return what a held-out part of the text is scored by, token by token; `InputError` if it is unfit."""
        raise NotImplementedError

    # The model and what is done with it

    def build_model(self, run, **options):
        """Return a fresh model for a run; `options` are `name`, `dtype` and those of its architecture."""
        raise NotImplementedError

    def vocabulary_sizes(self, model):
        """Return the sizes of the vocabularies of a model, in the order of `tokenizer_files`."""
        return [model.vocab_size]

    def predictor(self, runs):
        """Return the object that does the task with the models of one run or several."""
        raise NotImplementedError

    def validator(self, run, model, corpora, scored):
        """Return a `Validator` of a model in training.

        Args:
            run: a `Run`.
            model: its model.
            corpora: by part.
            scored: by part, `scored_examples`.
        """
        raise NotImplementedError

    def evaluate(self, run, corpus, engine=None):
        """Score a run on a text; keep the result in its scores.json, and return it.

        `engine` has the model, as `Validator.engine`; without one it is read from the run.
        """
        raise NotImplementedError

    def describe(self, scores):
        """Return scores as a line."""
        raise NotImplementedError

    def scored_settings(self, config):
        """Return the settings of a config that decide what a model is asked about a text."""
        return {}

    # The self-check

    def random_batch(self, run, random, rows, length):
        """Return a batch of random tokens, without weights, in the form of the task's examples."""
        raise NotImplementedError

    def embeddings(self, model):
        """Return the tables from which a model reads ids."""
        return [model.embedding]

    def wrong_labels(self, run, batch):
        """Return the share of the labels of a batch that are not what the model is to say."""
        raise NotImplementedError

    def probe(self, run, model, decode, batch):
        """Return a `Probe` of the search, for a task that `writes`."""
        raise NotImplementedError


class Probe:
    """A search over the examples of a batch, and how a model reads at once what the search has written.

    Args:
        search: from sources (and `limits`) to candidates, as a `Decoder`; `forbidden` are ids that it never writes.
        sources: lists of ids.
        limits: most tokens that the search may write for each.
    """

    def __init__(self, search, sources, limits):
        self.search, self.sources, self.limits = search, sources, limits

    def first_scored(self, row):
        """Return the position whose logits belong to the first token written for a source."""
        raise NotImplementedError

    def write_row(self, inputs, row, written):
        """Put a source and what was written for it into a row of inputs (arrays of zeros, by name)."""
        raise NotImplementedError


class Validator:
    """Scores a model while it is trained.

    Attributes:
        engine: what `Task.evaluate` scores with.
    """

    engine = None

    def __call__(self):
        """Return the scores of the model now, and under `samples` texts to show."""
        raise NotImplementedError

    def refresh(self):
        """Make the engine use the weights that the model has now."""


def starting_point(config):
    """Return the run that `train.start_from` names, and the config with its sizes in place of its own.

    Dropout, tied tables, the bias of the output and pooling stay the config's.
    """
    from heedful.run import Run

    before = Run.open(config.train.start_from).of_task("fill")
    before.refuse_more_than_in(before.weights_path())  # or what is missing would be missed when the new run has begun
    kept = ("dropout", "attention_dropout", "pooling", "tie", "output_bias", "untrained_head")
    own = {name: getattr(config.model, name) for name in kept}
    return before, dataclasses.replace(config, model=dataclasses.replace(before.config.model, **own))
