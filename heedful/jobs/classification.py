"""The classification job: an encoder that says which class a text belongs to."""

import dataclasses
import itertools
from collections import Counter

import numpy as np

from heedful.data.corpus import Corpus
from heedful.data.encoded import Ragged
from heedful.data.examples import plan_pieces
from heedful.data.labels import LabelledExamples, label_numbers, read_labelled
from heedful.errors import InputError
from heedful.evaluation import TokenScores, class_scores
from heedful.inspection import plot_confusion
from heedful.jobs.documents import text_tokenizer
from heedful.jobs.job import SCORED_TOKENS, Job, starting_point
from heedful.reading.labeller import Labeller
from heedful.scores.passport import keep
from heedful.storage import if_allowed

EXPECTED = 5  # texts of a class, from which on it is no chance if there are none


class ClassificationJob(Job):
    """Trains a `Classifier` on labelled texts, from scratch or from the encoder of a `MaskedLM`."""

    @staticmethod
    def open_text(config, files, origin=""):
        return read_labelled(files, origin)

    @staticmethod
    def prepare(config, corpora):
        corpus = corpora["train"]
        texts = [corpus]
        if not config.data.valid:  # held out of the same text
            _require_all_classes(corpus, corpora["valid"])
            texts.append(corpora["valid"])
        seen = sorted({label for label, _ in itertools.chain.from_iterable(texts)})
        if not seen:
            raise InputError(f"{corpus.name} is empty.")
        labels = config.data.labels or tuple(seen)
        if len(labels) < 2:
            raise InputError(
                f"All texts of {corpus.name} have the label {labels[0]!r}: there is nothing to tell apart."
            )
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, labels=labels))
        if config.train.start_from:
            before, config = starting_point(config)
            return dataclasses.replace(config, tokenizer=before.config.tokenizer), [before.tokenizer]
        texts = Corpus(lambda: (text for _, text in corpus), corpus.fingerprint, corpus.name)
        return config, [text_tokenizer(config, texts, mask=True)]

    def read_examples(self):
        examples = self._examples("train", self.config.data.batch_tokens, self.config.data.max_shapes)
        counts = np.bincount(examples.labels, minlength=len(self.config.data.labels))
        shares = ", ".join(f"{label} {count:,}" for label, count in zip(self.config.data.labels, counts, strict=True))
        self.report(f"training text: {len(examples.texts):,} texts ({shares})")
        return examples

    def scored_examples(self, part):
        return self._examples(part, min(self.config.data.batch_tokens, SCORED_TOKENS), 3)

    def start(self, model):
        self.engine = Labeller(model, self.run.tokenizer, self.config.data.labels, self.config.data.max_tokens)
        self._token_scores = TokenScores(model, self.scored["valid"])

    def validate(self):
        scores = self._token_scores()
        return {name: scores[name] for name in ("loss", "accuracy")}

    @staticmethod
    def evaluate(run, corpus, engine=None):
        """As of `Job`; what was taken for what is drawn into figures/confusion.png too."""
        labeller = engine or Labeller.from_run(run)
        wanted = label_numbers(corpus, labeller.labels)
        if not len(wanted):
            raise InputError(f"{corpus.name} is empty.")
        found = labeller.probabilities([text for _, text in corpus]).argmax(-1)
        scores = class_scores(found, wanted, labeller.labels)
        units = {"accuracy": np.stack([found == wanted, np.ones(len(wanted))], 1).astype(float)}
        scores = keep(run, corpus, scores, units, [labeller.labels[number] for number in found])
        with if_allowed("the confusions are not drawn"):
            plot_confusion(run.path / "figures" / "confusion.png", np.array(scores["confusion"]), labeller.labels)
        return scores

    @staticmethod
    def describe(scores):
        return f"accuracy {scores['accuracy']:.2%}  macro-F1 {scores['macro_f1']:.4f}  on {scores['texts']:,} texts"

    def _examples(self, part, batch_tokens, max_shapes):
        corpus, data = self.corpora[part], self.config.data
        labels = label_numbers(corpus, data.labels)
        if not len(labels):
            raise InputError(f"{corpus.name} is empty.")
        encoded = self.run.tokenizer.encode_batch([text for _, text in corpus])
        texts = Ragged.of(ids[: data.max_tokens - 2] for ids in encoded)
        plan = plan_pieces(
            texts, batch_tokens=batch_tokens, batch_sentences=data.batch_sentences, max_shapes=max_shapes,
            seed=self.config.train.seed,
        )  # fmt: skip
        return LabelledExamples(texts, labels, plan)


def _require_all_classes(train, valid):
    """Raise `InputError` if a text was sorted by class, so that what was held out of it, or the rest, lacks some."""
    rest, held_out = (Counter(label for label, _ in corpus) for corpus in (train, valid))
    share = held_out.total() / max(1, rest.total() + held_out.total())
    for label in sorted(rest | held_out):
        both = rest[label] + held_out[label]
        if (not held_out[label] and share * both >= EXPECTED) or (not rest[label] and (1 - share) * both >= EXPECTED):
            raise InputError(
                f"{valid.name}, held out to validate on, has {held_out[label]} texts of class {label!r}, the rest "
                f"{rest[label]}: the text seems to be sorted. Shuffle its lines, or name data.valid."
            )
