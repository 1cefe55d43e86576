"""Shared by the tasks that train on documents: corpora, vocabulary and encoded texts."""

from heedful.cache import encoded_folder
from heedful.data.documents import encode_texts, read_documents
from heedful.data.tokenizer import Tokenizer
from heedful.tasks.task import Task


class DocumentsTask(Task):
    """A task whose corpora are documents."""

    whole_texts = False

    def open_text(self, config, files, origin=""):
        return read_documents(files, config.data.documents, origin)

    def text_to_score(self, corpora):
        return corpora.get("test", corpora["valid"])  # often there is no test text


def encoded(run, corpus):
    """Return a corpus as `EncodedTexts`, cached on disk."""
    return encode_texts(corpus, run.tokenizer, encoded_folder())


def text_tokenizer(config, corpus, mask=False):
    """Learn the vocabulary of a run from documents."""
    return Tokenizer.train(corpus, mask=mask, **config.tokenizer.keywords())
