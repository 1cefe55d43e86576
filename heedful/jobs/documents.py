"""What the jobs that learn from documents have in common: their corpora, vocabulary and encoded texts."""

from heedful.cache import encoded_folder
from heedful.data.documents import encode_texts, read_documents
from heedful.data.tokenizer import Tokenizer
from heedful.jobs.job import Job


class DocumentsJob(Job):
    """A job whose corpora are documents; each task has a subclass."""

    @staticmethod
    def open_text(config, files, origin=""):
        return read_documents(files, config.data.documents, origin)

    def encoded(self, part):
        """Return the `EncodedTexts` of a part; kept on disk."""
        return encode_texts(self.corpora[part], self.run.tokenizer, encoded_folder())


def text_tokenizer(config, corpus, mask=False):
    """Learn the vocabulary of a run from documents."""
    return Tokenizer.train(corpus, mask=mask, **config.tokenizer.keywords())
