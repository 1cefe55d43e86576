"""Translation: an encoder-decoder model that writes a target text for each source text."""

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heedful.config import PARTS, Config, DataConfig, DecodeConfig
from heedful.config.data import BUILT_IN
from heedful.core.cache import encoded_folder
from heedful.core.errors import InputError
from heedful.core.progress import Report
from heedful.core.special_tokens import END_ID, FIRST_ID, START_ID
from heedful.data.bilingual_files import has_both_sides
from heedful.data.corpus import Corpus, resolve_pairs, with_references
from heedful.data.encoded import NoPairLeft, encode
from heedful.data.examples import Examples
from heedful.data.sentences import CutText
from heedful.data.tokenizer import Tokenizer
from heedful.runs.training_log import Sample
from heedful.tasks.start import starting_point
from heedful.tasks.suggestions import (
    Given,
    Suggestion,
    TextFacts,
    batch_suggestion,
    length_suggestion,
    model_suggestions,
    optimizer_suggestion,
    tokens_per_word,
)
from heedful.tasks.task import Corpora, Probe, Task, Validator
from heedful.tasks.translation_data import (
    corpora,
    examples_of,
    fresh_puzzles,
    protected,
    scored_pairs,
    train_tokenizers,
    with_markup_tokens,
    with_share_of_several,
)
from heedful.tasks.translation_scores import bleu_tokenizer_of, fitting_selection, translate_and_score

if TYPE_CHECKING:
    import keras

    from heedful.inference.predictor import Predictor
    from heedful.runs.run import Run

SAMPLES = 3  # translations shown at a validation


class Translate(Task):
    """Trains a `Transformer` on pairs of sentences; validation decodes some of them."""

    name = "translate"
    hub_task = "translation"
    tokenizer_files = ("source.tokenizer.json", "target.tokenizer.json")
    selected_by = ("bleu", "chrf", "loss", "accuracy")
    compared_by = ("bleu",)
    text_side, read_side = "target", "source"
    corpora = ("files", "phrasebook", "reverse")
    starts_from = (
        ("embedding/", "source_embedding/"), ("text_input/", "source_input/"), ("encoder/", "encoder/"),
    )  # fmt: skip
    writes = translates = True
    page = "translate"
    typical_recipe = "multi30k-de-en"
    ensembles = decodes_to_score = True

    def check_config(self, config: Config) -> None:
        if config.train.select_by in ("bleu", "chrf") and not config.train.validate_sentences:
            raise InputError(
                f"train.select_by = {config.train.select_by!r} needs train.validate_sentences > 0; or choose select_by "
                "= 'loss'."
            )
        if config.data.fresh and config.tokenizer.kind != "word":
            raise InputError("data.fresh needs tokenizer.kind = 'word', so that all examples have the same length.")
        for part in PARTS:
            files = getattr(config.data, part)
            if len(files) > 2:
                raise InputError(f"data.{part} takes two files or one .tsv file, not {len(files)}.")

    def default_selection(self, config: Config) -> str | None:
        return None if config.train.validate_sentences else "loss"

    def limits_length(self, config: Config) -> bool:
        return config.model.positions == "learned"

    def completed_from(self, config: Config, other: Config) -> Config:
        if config.train.select_by is None:
            train = dataclasses.replace(config.train, select_by=other.train.select_by)
            config = dataclasses.replace(config, train=train)
        data, before = config.data, other.data
        if data.several_sentences is None:
            data = dataclasses.replace(data, several_sentences=before.several_sentences)
        if not data.planned_updates:
            data = dataclasses.replace(data, planned_updates=before.planned_updates or other.train.updates)
        return dataclasses.replace(config, data=data)

    def text_layout(self, data: DataConfig) -> str:
        return "pairs"

    def suggest(self, facts: TextFacts, given: Given) -> list[Suggestion]:
        suggestions = [
            *model_suggestions(facts, given), length_suggestion(facts, given, tokens_per_word(facts, given)),
            batch_suggestion(facts, given),
        ]  # fmt: skip
        if optimizer := optimizer_suggestion(facts, given):
            suggestions.append(optimizer)
        if given.get("tokenizer.joint") is False:
            suggestions.append(Suggestion({"model.tie": "target"}, "two vocabularies"))
        return suggestions

    def open_text(self, config: Config, files: Sequence[str], origin: str = "") -> Corpus:
        return Corpus.from_files(files, origin)

    def file_groups(self, files: Sequence[str], origin: str = "") -> list[tuple[Path, ...]]:
        return resolve_pairs(files, origin)

    def find_corpora(self, config: Config) -> dict[str, Corpus]:
        return corpora(config)

    def open_scored_text(self, config: Config, files: Sequence[str]) -> Corpus:
        count = 1 if has_both_sides(files[0]) else 2
        return with_references(Corpus.from_files(files[:count]), files[count:])

    def text_of(self, item: tuple[str, str]) -> str:
        return item[0]

    def pair_of(self, item: tuple[str, str]) -> tuple[str, str]:
        return item[0], item[1]

    def prepare(self, config: Config, corpora: Corpora) -> tuple[Config, Sequence[Tokenizer]]:
        corpus = corpora["train"]
        if config.data.corpus in BUILT_IN and (named := [part for part in PARTS if getattr(config.data, part)]):
            raise InputError(
                f"data.corpus = {config.data.corpus!r} brings its own text, and data.{named[0]} names files: set "
                "data.corpus = 'files' to take those."
            )
        config = with_markup_tokens(with_share_of_several(self.completed_from(config, config), corpus))
        corpus = protected(config, corpus, training=True)
        if config.train.select_by is None:
            select_by = fitting_selection(config, corpora["valid"])
            config = dataclasses.replace(config, train=dataclasses.replace(config.train, select_by=select_by))
        if not config.train.init_from:
            return config, train_tokenizers(config, corpus)
        start = starting_point(config)
        config = start.config
        if start.whole:
            return config, start.tokenizers()
        if config.model.tie in ("all", "inputs"):
            raise InputError("train.init_from brings its own source vocabulary: set model.tie to 'target' or 'none'.")
        config = dataclasses.replace(config, tokenizer=dataclasses.replace(config.tokenizer, joint=False))
        return config, (start.tokenizers()[0], train_tokenizers(config, corpus, sides=(1,))[0])

    def training_examples(self, run: "Run", corpora: Corpora, report: Report) -> Examples:
        tokenizers = run.source_tokenizer, run.target_tokenizer
        if run.config.data.fresh:
            return fresh_puzzles(run.config, *tokenizers)
        corpus = protected(run.config, corpora["train"], training=True)
        dropout = run.config.data.bpe_dropout, run.config.train.seed
        pairs = encode(corpus, *tokenizers, run.config.data.max_tokens, encoded_folder(), dropout)
        report(f"training text: {pairs.filtered}")
        return examples_of(run.config, pairs)

    def scored_examples(self, run: "Run", corpora: Corpora, part: str) -> Examples:
        return scored_pairs(run, corpora[part], encoded_folder())

    def build_model(self, run: "Run", **options: Any) -> "keras.Model":
        from heedful.models import Transformer

        return Transformer(len(run.source_tokenizer), len(run.target_tokenizer), **options)

    def vocabulary_sizes(self, model: "keras.Model") -> list[int]:
        return [model.source_vocab_size, model.target_vocab_size]

    def predictor(self, runs: "Sequence[Run]", decode: DecodeConfig | None = None) -> "Predictor":
        from heedful.inference.translator import Translator

        return Translator.from_runs(runs, decode)

    def validator(
        self, run: "Run", model: "keras.Model", corpora: Corpora, scored: Mapping[str, Examples]
    ) -> Validator:
        return TranslationValidator(run, model, corpora["valid"], scored["valid"])

    def evaluate(self, run: "Run", corpus: Corpus, predictor: Any = None) -> dict[str, Any]:
        """Score a run on a parallel text; keep the result in its scores.json, and return it.

        Returns:
            bleu, chrf, exact, seconds and tokens per second of decoding, signatures, a 95 % interval; loss, perplexity
            and accuracy in the training precision, whatever that of decoding; and the provenance of the scores.
        """
        from heedful.runs.scores.provenance import save_scores
        from heedful.training.evaluation import TokenScores

        translator: Any = predictor or self.predictor([run])
        rows = list(corpus)  # source, reference, further references
        if not rows:
            raise InputError(f"{corpus.name} is empty.")
        pairs = [row[:2] for row in rows]
        # References in the form that the model writes: the same letters, and spaces, as in its training text.
        form = run.target_tokenizer.normalized
        references, more = [form(row[1]) for row in rows], [tuple(map(form, row[2:])) for row in rows]
        options: dict[str, Any] = {"tokenize": bleu_tokenizer_of(run.config, references), "more_references": more}
        began = time.monotonic()
        notes: list[str] = []
        translations, scores, counts = translate_and_score(translator, pairs, notes.append, **options)
        seconds = time.monotonic() - began
        if translator.glossary:
            kept = [
                translator.glossary.kept(*pair) for pair in zip([row[0] for row in rows], translations, strict=True)
            ]
            wanted, had = (sum(one[side] for one in kept) for side in (0, 1))
            scores |= {"terms": wanted, "terms_kept": round(had / wanted, 4) if wanted else 1.0}
        tokens = sum(len(ids) for ids in run.target_tokenizer.encode_batch(translations))
        readable = 0
        with contextlib.suppress(NoPairLeft):  # then there is no loss
            examples = scored_pairs(run, Corpus(lambda: pairs, corpus.fingerprint, corpus.name))
            readable = len(examples.pairs.source)
            scores |= TokenScores(translator.model, examples)()
        scores |= {
            "sentences": len(pairs),
            "sources_cut": sum(isinstance(note, CutText) for note in notes),
            "sentences_of_loss": readable,
            "seconds": round(seconds, 2),
            "output_tokens_per_second": round(tokens / seconds, 1),
        }
        return save_scores(run, corpus, scores, counts, translations, translator.decode)

    def describe(self, scores: Mapping[str, Any]) -> str:
        text = (
            f"BLEU {scores['bleu']:.2f}  chrF {scores['chrf']:.2f}  exact {scores['exact']:.2%}  "
            + (f"perplexity {scores['perplexity']:.3f}  " if "perplexity" in scores else "")
            + f"on {scores['sentences']:,} sentences"
        )
        if "terms" in scores:
            text += f", {scores['terms_kept']:.2%} of {scores['terms']:,} terms"
        if scores["sources_cut"]:
            text += f", {scores['sources_cut']:,} of them with a source that is too long"
        if left_out := scores["sentences"] - scores["sentences_of_loss"]:
            text += f"; the perplexity excludes {left_out:,} that are too long or empty"
        return text

    def random_batch(self, run: "Run", random: np.random.Generator, rows: int, length: int) -> dict[str, np.ndarray]:
        end, begin = np.full((rows, 1), END_ID, np.int32), np.full((rows, 1), START_ID, np.int32)
        ids = random.integers(FIRST_ID, len(run.source_tokenizer), (rows, length), dtype=np.int32)
        written = random.integers(FIRST_ID, len(run.target_tokenizer), ids.shape, dtype=np.int32)
        return {
            "source": np.concatenate([ids, end], axis=1),
            "target": np.concatenate([begin, written], axis=1),
            "labels": np.concatenate([written, end], axis=1),
        }

    def embeddings(self, model: "keras.Model") -> "list[keras.layers.Layer]":
        return [model.source_embedding, model.target_embedding]

    def wrong_labels(self, run: "Run", batch: Mapping[str, np.ndarray]) -> float:
        target = batch["target"]
        wrong = not_next(target, batch["labels"], batch.get("target_segments"))
        ends = (batch["labels"] == END_ID).sum(axis=1) != (target == START_ID).sum(axis=1)
        return float((wrong | ends[:, None]).mean())

    def probe(self, run: "Run", model: "keras.Model", decode: DecodeConfig, batch: Mapping[str, np.ndarray]) -> Probe:
        from heedful.decoding.batch_search import BatchSearch

        search = BatchSearch(model, decode, run.target_tokenizer, scored=True, brief=True)
        search.prefix = []  # the first token is checked too
        sources = [row[row != 0].tolist()[: batch["source"].shape[1] - 1] for row in batch["source"]]
        limits = [min(decode.max_length, search.length_limit(len(source))) for source in sources]
        return TranslationProbe(search, sources, limits)


class TranslationProbe(Probe):
    """Sources to translate, and translations to score in one forward pass."""

    def first_scored(self, row: int) -> int:
        return 0

    def write_row(self, inputs: dict[str, np.ndarray], row: int, written: Sequence[int]) -> None:
        source = self.sources[row]
        inputs["source"][row, : len(source) + 1] = [*source, END_ID]
        inputs["target"][row, : len(written)] = [START_ID, *written[:-1]]


class TranslationValidator(Validator):
    """Measures the loss on a corpus, and decodes the first of its sentences."""

    def __init__(self, run: "Run", model: "keras.Model", corpus: Corpus, scored: Examples):
        from heedful.inference.line_reader import LineReader
        from heedful.inference.translator import Translator
        from heedful.inspection.cross_attention import CrossAttention
        from heedful.training.evaluation import TokenScores

        tokenizers = run.source_tokenizer, run.target_tokenizer
        self.predictor = Translator(model, *tokenizers, run.config.decode, reader=LineReader.of_run(run))
        self._pairs = list(itertools.islice(corpus, run.config.train.validate_sentences))
        self._tokenize = bleu_tokenizer_of(run.config, [reference for _, reference in self._pairs])
        self._token_scores, self._cross_attention = TokenScores(model, scored), CrossAttention(model)
        self._translations: list[str] = []

    def __call__(self) -> dict[str, Any]:
        scores = self._token_scores()
        del scores["tokens"]  # the same at every validation
        if self._pairs:
            self.refresh()
            translations, text_scores, _ = translate_and_score(
                self.predictor, self._pairs, decode={"split": "never"}, tokenize=self._tokenize
            )
            scores |= {name: text_scores[name] for name in ("bleu", "chrf")}
            self._translations = translations[:SAMPLES]
        return scores

    def samples(self) -> list[Sample]:
        """Return the first pairs with their translations."""
        if not self._translations:
            return []
        pairs, translations = self._pairs[: len(self._translations)], self._translations
        sources = self.predictor.source_tokenizer.encode_batch([source for source, _ in pairs])
        attention = self._cross_attention(sources, self.predictor.target_tokenizer.encode_batch(translations))
        return [
            Sample(
                f"{source}  ->  {hypothesis}   [{reference}]",
                {"text": source, "translation": hypothesis, "reference": reference} | read,
            )
            for (source, reference), hypothesis, read in zip(pairs, translations, attention, strict=True)
        ]


def not_next(text: np.ndarray, labels: np.ndarray, segments: np.ndarray | None = None) -> np.ndarray:
    """Return a mask (B, T) of the labels that are not the next token of the text (B, T)."""
    following = np.concatenate([text[:, 1:], np.zeros_like(text[:, :1])], axis=1)
    wrong = (labels != following) & (following != 0)
    if segments is not None:  # the last label of a text is its end token, but the next token belongs to another text
        wrong[:, :-1] &= segments[:, 1:] == segments[:, :-1]
    return wrong
