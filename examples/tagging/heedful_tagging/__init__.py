"""A task that heedful does not have, tagging, and a metric: the share of lines whose tags are all right.

A line of the text is `word/TAG word/TAG ...`.
"""

import dataclasses

import numpy as np

from heedful.data.corpus import Corpus, fingerprint_files, resolve_all
from heedful.data.text_files import read_lines
from heedful.data.encoded import Ragged
from heedful.data.examples import PlannedExamples, enclosed, plan_pieces
from heedful.core.special_tokens import END_ID, START_ID
from heedful.core.errors import InputError
from heedful.inference.predictor import Predictor
from heedful.runs.scores.metrics import Metric
from heedful.tasks.documents import text_tokenizer
from heedful.tasks.fill import TokenValidator, random_text
from heedful.tasks.task import SCORED_TOKENS, Task

EXACT_TAGS = Metric(score=lambda sums: sums[0] / sums[1], num_counts=2, digits=4)  # counts: correct lines, all lines


class Tag(Task):
    """Trains an encoder that gives each word of a line a tag; the tags are `data.labels`."""

    name = "tag"
    compared_by = ("exact_tags", "accuracy")

    def text_layout(self, data):
        return "lines"

    def open_text(self, config, files, origin=""):
        paths = resolve_all(files, origin)
        lines = Corpus(lambda: (line for path in paths for line in read_lines(path)), "", "")
        pairs = lambda: (tuple(word.rsplit("/", 1) for word in line.split()) for line in lines)  # noqa: E731
        return Corpus(pairs, fingerprint_files(paths), " + ".join(map(str, paths)))

    def prepare(self, config, corpora):
        tags = tuple(sorted({tag for line in corpora["train"] for _, tag in line}))
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, labels=tags))
        words = Corpus(lambda: (word for line in corpora["train"] for word, _ in line), "", "")
        return config, [text_tokenizer(config, words)]

    def training_examples(self, run, corpora, report):
        data = run.config.data
        return examples(run, corpora["train"], data.batch_tokens, data.max_shapes)

    def scored_examples(self, run, corpora, part):
        return examples(run, corpora[part], SCORED_TOKENS, 3)

    def build_model(self, run, **options):
        from heedful_tagging.model import Tagger

        return Tagger(len(run.tokenizer), len(run.config.data.labels), **options)

    def predictor(self, runs, decode=None):
        return WordTagger.from_run(runs[0])

    def validator(self, run, model, corpora, scored):
        return TokenValidator(WordTagger(model, run), scored["valid"])

    def evaluate(self, run, corpus, predictor=None):
        from heedful import backend
        from heedful.runs.scores.provenance import save_scores

        model, right, words = (predictor or self.predictor([run])).model, [], []
        for batch in examples(run, corpus, SCORED_TOKENS, 3).one_pass():
            correct = backend.to_numpy(model({"ids": batch["ids"]})).argmax(-1) == batch["labels"]
            right += ((correct * batch["weights"]).sum(1)).tolist()
            words += batch["weights"].sum(1).tolist()
        right, words = np.array(right)[np.array(words) > 0], np.array(words)[np.array(words) > 0]
        counts = {"accuracy": np.stack([right, words], 1), "exact_tags": np.stack([right == words, words > 0], 1) * 1.0}
        scores = {"accuracy": right.sum() / words.sum(), "exact_tags": float((right == words).mean())}
        return save_scores(run, corpus, scores, counts)

    def describe(self, scores):
        return f"{scores['accuracy']:.2%} of the tags, {scores['exact_tags']:.2%} of the lines right"

    def random_batch(self, run, random, rows, length):
        ids = random_text(run, random, rows, length)
        return {"ids": ids, "labels": random.integers(0, len(run.config.data.labels), ids.shape, dtype=np.int32)}

    def wrong_labels(self, run, batch):
        real = np.isin(batch["ids"], (0, START_ID, END_ID), invert=True)
        known = batch["labels"] < len(run.config.data.labels)
        return float(((batch["weights"] > 0) != real).mean() + (~known).mean())


class WordTagger(Predictor):
    """Tags the words of a line, which are separated by blanks."""

    def __init__(self, model, run):
        self.model, self.tokenizer, self.data = model, run.tokenizer, run.config.data

    @classmethod
    def from_run(cls, run, decode=None):
        return cls(run.load_model(), run)

    def predict_stream(self, texts, warn=None, **options):
        """Yield a list of (word, tag) for each line."""
        from heedful import backend

        for text in texts:
            words = text.split()[: self.data.max_tokens - 2]
            ids = [START_ID, *(ids[0] for ids in self.tokenizer.encode_batch(words)), END_ID]
            predicted = backend.to_numpy(self.model({"ids": np.array([ids])}))[0, 1:-1].argmax(-1)
            yield [(word, self.data.labels[tag]) for word, tag in zip(words, predicted, strict=True)]


class TaggedExamples(PlannedExamples):
    """Lines with a tag for each word."""

    def __init__(self, texts, tags, plan):
        super().__init__(plan)
        self.texts, self.tags = texts, tags

    def read(self, rows, shape, draw):
        """Return ids, labels and float32 weights, each (B, T); start and end have no tag."""
        ids = enclosed(self.texts, rows, shape.target_length)
        labels = np.zeros_like(ids)
        labels[:, 1:-1] = self.tags.padded(rows, shape.target_length - 2)
        weights = np.isin(ids, (0, START_ID, END_ID), invert=True)
        return {"ids": ids, "labels": labels * weights, "weights": weights.astype(np.float32)}


def examples(run, corpus, batch_tokens, max_shapes):
    """Return the lines of a corpus as `TaggedExamples`."""
    data, numbers = run.config.data, {tag: number for number, tag in enumerate(run.config.data.labels)}
    lines = [line[: data.max_tokens - 2] for line in corpus if line]
    if unknown := {tag for line in lines for _, tag in line} - numbers.keys():
        raise InputError(f"{corpus.name} has the tag {min(unknown)!r}, which the training text lacks.")
    texts = Ragged.of([ids[0] for ids in run.tokenizer.encode_batch(word for word, _ in line)] for line in lines)
    tags = Ragged.of([numbers[tag] for _, tag in line] for line in lines)
    plan = plan_pieces(texts, batch_tokens=batch_tokens, max_shapes=max_shapes, seed=run.config.train.seed)
    return TaggedExamples(texts, tags, plan)
