"""Shared by the tasks that train on documents: corpora, vocabulary and encoded texts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from heedful.config import Config
from heedful.core.cache import encoded_folder
from heedful.data.corpus import Corpus
from heedful.data.documents import EncodedTexts, encode_texts, read_documents
from heedful.data.tokenizer import Tokenizer
from heedful.tasks.task import Corpora, Task

if TYPE_CHECKING:
    from heedful.runs.run import Run


class DocumentsTask(Task):
    """A task whose corpora are documents."""

    whole_texts = False

    def open_text(self, config: Config, files: Sequence[str], origin: str = "") -> Corpus:
        return read_documents(files, config.data.documents, origin)

    def text_to_score(self, corpora: Corpora) -> Corpus:
        return corpora.get("test", corpora["valid"])  # often there is no test text


def encoded(run: "Run", corpus: Corpus) -> EncodedTexts:
    """Return a corpus as `EncodedTexts`, cached on disk."""
    return encode_texts(corpus, run.tokenizer, encoded_folder())


def text_tokenizer(config: Config, corpus: Corpus, mask: bool = False) -> Tokenizer:
    """Learn the vocabulary of a run from documents."""
    return Tokenizer.train(corpus, mask=mask, **config.tokenizer.keywords())


def first_line(document: str) -> str:
    """Return the first line of a document that is not blank."""
    return next((line for line in document.split("\n") if line.strip()), "")
