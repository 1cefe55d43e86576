"""Classification: an encoder that predicts the class of a text."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from heedful.config import Config, DataConfig, DecodeConfig
from heedful.core.errors import InputError, counted
from heedful.core.progress import Report
from heedful.core.storage import warn_if_not_writable
from heedful.data.corpus import Corpus
from heedful.data.examples import Examples, plan_pieces
from heedful.data.labels import (
    NAMED,
    LabelledExamples,
    label_numbers,
    label_sets,
    read_labelled,
    require_labels,
    split_labels,
    written_labels,
)  # fmt: skip
from heedful.data.ragged import Ragged
from heedful.data.tokenizer import Tokenizer
from heedful.runs.training_log import Sample
from heedful.tasks.documents import text_tokenizer
from heedful.tasks.fill import random_text, require_three_tokens
from heedful.tasks.start import require_known_labels, starting_point, tokenizer_config
from heedful.tasks.suggestions import Given, Suggestion, TextFacts, length_suggestion, schedule_suggestion, times
from heedful.tasks.task import SCORED_TOKENS, Corpora, Task, Validator

if TYPE_CHECKING:
    import keras

    from heedful.inference.predictor import Predictor
    from heedful.runs.run import Run

SAMPLES = 3  # texts shown at a validation
# Of a text without a recipe; BATCH_TOKENS is that of the recipe.
PASSES, BATCH_TOKENS, LEAST_UPDATES = 8, 1024, 50
EXPECTED = 5  # expected texts of a class from which on their absence is no chance


class Classify(Task):
    """Trains a `Classifier` on labelled texts, from scratch or from the encoder of a `MaskedLM`."""

    name = "classify"
    hub_task = "text-classification"
    compared_by = ("accuracy",)
    starts_from = tuple((part, part) for part in ("embedding/", "text_input/", "encoder/"))
    all_frozen = embeds = classifies = True
    page = "classify"
    typical_recipe = "trec"

    def text_of(self, item: tuple[str, str]) -> str:
        return item[1]

    def pair_of(self, item: tuple[str, str]) -> tuple[str, str]:
        return item[1], item[0]

    def check_config(self, config: Config) -> None:
        require_three_tokens(config)
        if config.data.several_labels and config.train.class_weights:
            raise InputError("train.class_weights is for texts with one label each, without data.several_labels.")

    def default_selection(self, config: Config) -> str:
        return "accuracy"

    def text_layout(self, data: DataConfig) -> str:
        return "labelled"

    def suggest(self, facts: TextFacts, given: Given) -> list[Suggestion]:
        batch = given.get("data.batch_tokens", BATCH_TOKENS)
        updates = facts.updates or max(LEAST_UPDATES, round(PASSES * facts.tokens / batch))
        suggestions = [
            length_suggestion(facts, given),
            schedule_suggestion(facts, updates, updates),
            Suggestion({"train.updates": updates}, f"the text is read {times(updates * batch / facts.tokens)}"),
        ]
        if not facts.has_spaces:
            suggestions.append(Suggestion({"tokenizer.kind": "wordpiece"}, "there are no spaces between the words"))
        return suggestions

    def open_text(self, config: Config, files: Sequence[str], origin: str = "") -> Corpus:
        return read_labelled(files, origin)

    def prepare(self, config: Config, corpora: Corpora) -> tuple[Config, Sequence[Tokenizer]]:
        corpus, several = corpora["train"], config.data.several_labels
        held_out = [] if config.data.valid else [corpora["valid"]]  # of the same text
        text = Corpus(lambda: itertools.chain(corpus, *held_out), corpus.fingerprint, corpus.name)
        if not any(True for _ in text):
            raise InputError(f"{corpus.name} is empty.")
        if several:
            seen = sorted({label for written, _ in text for label in split_labels(written)})
        else:
            seen = require_labels(corpus.name, text)
            if held_out:
                _require_all_classes(corpus, corpora["valid"])
        start = starting_point(config) if config.train.init_from else None
        if start and start.whole:
            return require_known_labels(start, seen), start.tokenizers()
        labels = config.data.labels or tuple(seen)
        if several and not labels:
            raise InputError(f"No text of {corpus.name} has a label: there is nothing to classify.")
        if len(labels) < 2 and not several:
            raise InputError(f"All texts of {corpus.name} have the label {labels[0]!r}: there is nothing to classify.")
        config = start.config if start else config
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, labels=labels))
        if start:
            return dataclasses.replace(config, tokenizer=tokenizer_config(start.run, config)), start.tokenizers()
        plain = Corpus(lambda: (text for _, text in corpus), corpus.fingerprint, corpus.name)
        return config, [text_tokenizer(config, plain, mask=True)]

    def training_examples(self, run: "Run", corpora: Corpora, report: Report) -> Examples:
        data = run.config.data
        examples = _examples(run, corpora["train"], data.batch_tokens, data.max_shapes, weighted=True)
        labels = examples.labels
        counts = labels.sum(0) if data.several_labels else np.bincount(labels[:, 0], minlength=len(data.labels))
        shares = [f"{label} {count:,}" for label, count in zip(data.labels, counts, strict=True)]
        more = f", and {len(shares) - NAMED:,} more labels" if len(shares) > NAMED else ""
        report(f"training text: {counted(len(examples.texts), 'text')} ({', '.join(shares[:NAMED])}{more})")
        return examples

    def scored_examples(self, run: "Run", corpora: Corpora, part: str) -> Examples:
        return _examples(run, corpora[part], min(run.config.data.batch_tokens, SCORED_TOKENS), 3)

    def build_model(self, run: "Run", **options: Any) -> "keras.Model":
        from heedful.models import Classifier

        config = run.config
        head = {name: getattr(config.model, name) for name in ("pooling", "pooler_activation", "convolutions")}
        head["several_labels"] = config.data.several_labels
        return Classifier(len(run.tokenizer), len(config.data.labels), **head, **options)

    def predictor(self, runs: "Sequence[Run]", decode: DecodeConfig | None = None) -> "Predictor":
        from heedful.inference.text_classifier import TextClassifier

        return TextClassifier.from_run(runs[0])

    def validator(
        self, run: "Run", model: "keras.Model", corpora: Corpora, scored: Mapping[str, Examples]
    ) -> Validator:
        return ClassValidator(run, model, corpora["valid"], scored["valid"])

    def evaluate(self, run: "Run", corpus: Corpus, predictor: Any = None) -> dict[str, Any]:
        """As `Task.evaluate`; also draw the confusion matrix to figures/confusion.png."""
        from heedful.inspection.figures import draw_confusion
        from heedful.runs.scores.calibration import calibration_error
        from heedful.runs.scores.provenance import save_scores
        from heedful.training.evaluation import class_scores, label_set_scores

        classifier: Any = predictor or self.predictor([run])
        labels, several = classifier.labels, classifier.several_labels
        wanted = _wanted(corpus, labels, several)
        probabilities = classifier.probabilities([text for _, text in corpus])
        if several:
            predicted = (probabilities >= 0.5).astype(np.int32)
            right, decisions = (predicted == wanted).all(-1), predicted == wanted
            scores = label_set_scores(predicted, wanted, labels)
            confidence = np.where(predicted, probabilities, 1 - probabilities)
            scores["calibration_error"] = calibration_error(confidence.ravel(), decisions.ravel())
            written = [written_labels(itertools.compress(labels, row)) for row in predicted]
        else:
            predicted = probabilities.argmax(-1)
            right = predicted == wanted
            scores = class_scores(predicted, wanted, labels)
            scores["calibration_error"] = calibration_error(probabilities.max(-1), right)
            written = [labels[number] for number in predicted]
        counts = {"accuracy": np.stack([right, np.ones(len(wanted))], 1).astype(float)}
        scores = save_scores(run, corpus, scores, counts, written)
        if not several:
            with warn_if_not_writable("the confusion matrix is not drawn"):
                draw_confusion(run.path / "figures" / "confusion.png", np.array(scores["confusion"]), labels)
        return scores

    def details(self, scores: Mapping[str, Any]) -> list[str]:
        """Return a table of the classes."""
        width = max(map(len, ("class", *scores["classes"])))
        lines = [f"{'class':{width}s}  precision  recall     f1   texts"]
        for label, one in scores["classes"].items():
            lines.append(
                f"{label:{width}s}  {one['precision']:9.2%} {one['recall']:7.2%} {one['f1']:6.4f} {one['texts']:7,}"
            )
        return lines

    def finish_training(self, run: "Run", corpora: Corpora, predictor: Any, report: Report) -> bool:
        """Calibrate the trained weights on the validation text; return whether they have changed."""
        from heedful.tasks.calibration import calibrate

        if not run.config.train.calibrate:
            return False
        classifier, corpus = predictor, corpora["valid"]
        wanted = _wanted(corpus, classifier.labels, classifier.several_labels)
        return calibrate(run, classifier.logits([text for _, text in corpus]), wanted, report)

    def describe(self, scores: Mapping[str, Any]) -> str:
        error = f"  calibration error {scores['calibration_error']:.4f}" if "calibration_error" in scores else ""
        line = f"accuracy {scores['accuracy']:.2%}  macro-F1 {scores['macro_f1']:.4f}"
        return f"{line}{error}  on {scores['texts']:,} texts"

    def random_batch(self, run: "Run", random: np.random.Generator, rows: int, length: int) -> dict[str, np.ndarray]:
        ids, classes = random_text(run, random, rows, length), len(run.config.data.labels)
        if run.config.data.several_labels:
            return {"ids": ids, "labels": random.integers(0, 2, (rows, classes), dtype=np.int32)}
        return {"ids": ids, "labels": random.integers(0, classes, (rows, 1), dtype=np.int32)}

    def wrong_labels(self, run: "Run", batch: Mapping[str, np.ndarray]) -> float:
        choices = 2 if run.config.data.several_labels else len(run.config.data.labels)
        wrong = (batch["labels"] < 0) | (batch["labels"] >= choices)
        return float(wrong[batch["weights"][:, 0] > 0].mean())


class ClassValidator(Validator):
    """Measures loss and accuracy on a corpus, and classifies its first texts; its predictor is a `TextClassifier`."""

    def __init__(self, run: "Run", model: "keras.Model", corpus: Corpus, scored: Examples):
        from heedful.inference.text_classifier import TextClassifier
        from heedful.training.evaluation import TokenScores

        self.predictor = TextClassifier(model, run.tokenizer, run.config.data.labels, run.config.data.max_tokens)
        self._token_scores = TokenScores(model, scored)
        self._shown = list(itertools.islice(corpus, SAMPLES))

    def __call__(self) -> dict[str, Any]:
        scores = self._token_scores()
        self.refresh()
        return {name: scores[name] for name in ("loss", "accuracy")}

    def samples(self) -> list[Sample]:
        """Return the first texts with their predicted classes."""
        from heedful.inference.predictor import discard_warning

        results = self.predictor.predict([text for _, text in self._shown], warn=discard_warning)
        predicted = [
            written_labels(one.label for one in each) if isinstance(each, list) else each.label for each in results
        ]
        return [
            Sample(f"{text}  ->  {label}   [{wanted}]", {"text": text, "label": label, "reference": wanted})
            for (wanted, text), label in zip(self._shown, predicted, strict=True)
        ]


def _wanted(corpus, labels, several):
    """Return the class of each text (N,), or which classes it has (N, C)."""
    wanted = label_sets(corpus, labels) if several else label_numbers(corpus, labels)
    if not len(wanted):
        raise InputError(f"{corpus.name} is empty.")
    return wanted


def _examples(run, corpus, batch_tokens, max_shapes, weighted=False):
    data = run.config.data
    labels = _wanted(corpus, data.labels, data.several_labels)
    encoded = run.tokenizer.encode_batch([text for _, text in corpus])
    texts = Ragged.of(ids[: data.max_tokens - 2] for ids in encoded)
    plan = plan_pieces(
        texts, batch_tokens=batch_tokens, batch_sentences=data.batch_sentences, max_shapes=max_shapes,
        seed=run.config.train.seed,
    )  # fmt: skip
    weights = _class_weights(run.config, labels)[labels] if weighted and run.config.train.class_weights else None
    return LabelledExamples(texts, labels, plan, weights)


def _class_weights(config, labels):
    """Return the weight of each class (C,)."""
    classes, train = config.data.labels, config.train
    given = train.parsed_class_weights()
    if unknown := sorted(given.keys() - set(classes)):
        raise InputError(f"train.class_weights names the class {unknown[0]!r}; there are {', '.join(classes)}.")
    if given:
        return np.array([given.get(label, 1.0) for label in classes])
    counts = np.bincount(labels, minlength=len(classes))
    return len(labels) / (len(classes) * np.maximum(counts, 1))


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
