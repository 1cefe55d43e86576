"""How a task reads text, and makes tokenizers and examples of it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from heedful.config import PARTS, Config
from heedful.core.errors import InputError
from heedful.core.progress import Report
from heedful.data.corpus import Corpus, hold_out, resolve_all
from heedful.data.examples import Examples
from heedful.data.tokenizer import Tokenizer

if TYPE_CHECKING:
    from heedful.runs.run import Run

Corpora = Mapping[str, Corpus]  # by part: train, valid, test


class TaskText:
    """From files to corpora, tokenizers and examples."""

    tokenizer_files: ClassVar[tuple[str, ...]] = ("tokenizer.json",)
    """Files of the tokenizers in a run folder: one, or those of source and target."""
    text_side: ClassVar[str] = "ids"
    """The array of a batch whose positions have the logits."""
    read_side: ClassVar[str] = "ids"
    """The array of a batch that the model reads first."""

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
        corpora = {part: self.open_text(config, names, config.data.origin) for part, names in files.items() if names}
        if "train" not in corpora:
            raise InputError("data.train must name text files.")
        if "valid" in corpora:
            return corpora
        if not config.data.held_out:
            raise InputError("data.valid must name text files, or data.held_out a share of the training text.")
        train, valid = hold_out(corpora["train"], config.data.held_out)
        return {**corpora, "train": train, "valid": valid}

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

    def training_examples(self, run: "Run", corpora: Corpora, report: Report) -> Examples:
        """Return the training examples, in the form of `PlannedExamples`; report which text was left out."""
        raise NotImplementedError

    def scored_examples(self, run: "Run", corpora: Corpora, part: str) -> Examples:
        """Return the examples to score a held-out part token by token; raise `InputError` if it is unusable."""
        raise NotImplementedError
