"""Classification: an encoder that predicts the class of a text."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from heedful.config import Config, DataConfig, DecodeConfig
from heedful.data.corpus import Corpus
from heedful.data.encoded import Ragged
from heedful.data.examples import Examples, plan_pieces
from heedful.data.labels import LabelledExamples, label_numbers, read_labelled
from heedful.data.tokenizer import Tokenizer
from heedful.errors import InputError
from heedful.storage import warn_if_forbidden
from heedful.tasks.documents import text_tokenizer
from heedful.tasks.fill import random_text, require_three_tokens
from heedful.tasks.start import require_known_labels, starting_point
from heedful.tasks.task import SCORED_TOKENS, Corpora, Report, Task, Validator

if TYPE_CHECKING:
    import keras

    from heedful.inference.predictor import Predictor
    from heedful.run import Run

EXPECTED = 5  # expected texts of a class from which on their absence is no chance


class Classify(Task):
    """Trains a `Classifier` on labelled texts, from scratch or from the encoder of a `MaskedLM`."""

    name = "classify"
    hub_task = "text-classification"
    compared_by = ("accuracy",)
    starts_from = tuple((part, part) for part in ("embedding/", "text_input/", "encoder/"))
    all_frozen = embeds = True
    page = "classify"

    def text_of(self, item: tuple[str, str]) -> str:
        return item[1]

    def pair_of(self, item: tuple[str, str]) -> tuple[str, str]:
        return item[1], item[0]

    def check_config(self, config: Config) -> None:
        require_three_tokens(config)

    def default_selection(self, config: Config) -> str:
        return "accuracy"

    def text_layout(self, data: DataConfig) -> str:
        return "labelled"

    def open_text(self, config: Config, files: Sequence[str], origin: str = "") -> Corpus:
        return read_labelled(files, origin)

    def prepare(self, config: Config, corpora: Corpora) -> tuple[Config, Sequence[Tokenizer]]:
        corpus = corpora["train"]
        texts = [corpus]
        if not config.data.valid:  # held out of the same text
            _require_all_classes(corpus, corpora["valid"])
            texts.append(corpora["valid"])
        seen = sorted({label for label, _ in itertools.chain.from_iterable(texts)})
        if not seen:
            raise InputError(f"{corpus.name} is empty.")
        start = starting_point(config) if config.train.init_from else None
        if start and start.whole:
            return require_known_labels(start, seen), [start.run.tokenizer]
        labels = config.data.labels or tuple(seen)
        if len(labels) < 2:
            raise InputError(f"All texts of {corpus.name} have the label {labels[0]!r}: there is nothing to classify.")
        config = start.config if start else config
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, labels=labels))
        if start:
            return dataclasses.replace(config, tokenizer=start.run.config.tokenizer), [start.run.tokenizer]
        plain = Corpus(lambda: (text for _, text in corpus), corpus.fingerprint, corpus.name)
        return config, [text_tokenizer(config, plain, mask=True)]

    def training_examples(self, run: "Run", corpora: Corpora, report: Report) -> Examples:
        data = run.config.data
        examples = _examples(run, corpora["train"], data.batch_tokens, data.max_shapes)
        counts = np.bincount(examples.labels, minlength=len(data.labels))
        shares = ", ".join(f"{label} {count:,}" for label, count in zip(data.labels, counts, strict=True))
        report(f"training text: {len(examples.texts):,} texts ({shares})")
        return examples

    def scored_examples(self, run: "Run", corpora: Corpora, part: str) -> Examples:
        return _examples(run, corpora[part], min(run.config.data.batch_tokens, SCORED_TOKENS), 3)

    def build_model(self, run: "Run", **options) -> "keras.Model":
        from heedful.models import Classifier

        config = run.config
        head = {name: getattr(config.model, name) for name in ("pooling", "pooler_activation", "convolutions")}
        return Classifier(len(run.tokenizer), len(config.data.labels), **head, **options)

    def predictor(self, runs: "Sequence[Run]", decode: DecodeConfig | None = None) -> "Predictor":
        from heedful.inference.text_classifier import TextClassifier

        return TextClassifier.from_run(runs[0])

    def validator(
        self, run: "Run", model: "keras.Model", corpora: Corpora, scored: Mapping[str, Examples]
    ) -> Validator:
        return ClassValidator(run, model, scored["valid"])

    def evaluate(self, run: "Run", corpus: Corpus, predictor: Any = None) -> dict[str, Any]:
        """As `Task.evaluate`; also draw the confusion matrix to figures/confusion.png."""
        from heedful.evaluation import class_scores
        from heedful.inspection.figures import draw_confusion
        from heedful.scores.provenance import save_scores

        classifier: Any = predictor or self.predictor([run])
        wanted = label_numbers(corpus, classifier.labels)
        if not len(wanted):
            raise InputError(f"{corpus.name} is empty.")
        found = classifier.probabilities([text for _, text in corpus]).argmax(-1)
        scores = class_scores(found, wanted, classifier.labels)
        counts = {"accuracy": np.stack([found == wanted, np.ones(len(wanted))], 1).astype(float)}
        scores = save_scores(run, corpus, scores, counts, [classifier.labels[number] for number in found])
        with warn_if_forbidden("the confusion matrix is not drawn"):
            draw_confusion(run.path / "figures" / "confusion.png", np.array(scores["confusion"]), classifier.labels)
        return scores

    def describe(self, scores: Mapping[str, Any]) -> str:
        return f"accuracy {scores['accuracy']:.2%}  macro-F1 {scores['macro_f1']:.4f}  on {scores['texts']:,} texts"

    def random_batch(self, run: "Run", random: np.random.Generator, rows: int, length: int) -> dict[str, np.ndarray]:
        ids = random_text(run, random, rows, length)
        return {"ids": ids, "labels": random.integers(0, len(run.config.data.labels), (rows, 1), dtype=np.int32)}

    def wrong_labels(self, run: "Run", batch: Mapping[str, np.ndarray]) -> float:
        wrong = (batch["labels"] < 0) | (batch["labels"] >= len(run.config.data.labels))
        return float(wrong[batch["weights"] > 0].mean())


class ClassValidator(Validator):
    """Measures loss and accuracy on a corpus; its predictor is a `TextClassifier`."""

    def __init__(self, run: "Run", model: "keras.Model", scored: Examples):
        from heedful.evaluation import TokenScores
        from heedful.inference.text_classifier import TextClassifier

        self.predictor = TextClassifier(model, run.tokenizer, run.config.data.labels, run.config.data.max_tokens)
        self._token_scores = TokenScores(model, scored)

    def __call__(self) -> dict[str, Any]:
        scores = self._token_scores()
        return {name: scores[name] for name in ("loss", "accuracy")}


def _examples(run, corpus, batch_tokens, max_shapes):
    data = run.config.data
    labels = label_numbers(corpus, data.labels)
    if not len(labels):
        raise InputError(f"{corpus.name} is empty.")
    encoded = run.tokenizer.encode_batch([text for _, text in corpus])
    texts = Ragged.of(ids[: data.max_tokens - 2] for ids in encoded)
    plan = plan_pieces(
        texts, batch_tokens=batch_tokens, batch_sentences=data.batch_sentences, max_shapes=max_shapes,
        seed=run.config.train.seed,
    )  # fmt: skip
    return LabelledExamples(texts, labels, plan)


def _require_all_classes(train, valid):
    """Raise `InputError` if a text seems sorted by class: its held-out part, or the rest, lacks some classes."""
    rest, held_out = (Counter(label for label, _ in corpus) for corpus in (train, valid))
    share = held_out.total() / max(1, rest.total() + held_out.total())
    for label in sorted(rest | held_out):
        both = rest[label] + held_out[label]
        if (not held_out[label] and share * both >= EXPECTED) or (not rest[label] and (1 - share) * both >= EXPECTED):
            raise InputError(
                f"{valid.name}, held out to validate on, has {held_out[label]} texts of class {label!r}, the rest "
                f"{rest[label]}: the text seems to be sorted. Shuffle its lines, or name data.valid."
            )
