"""The translation job: from a config and its text to a trained, scored and illustrated run."""

import dataclasses
import functools
import itertools
import time

import numpy as np

from heedful.cache import encoded_folder
from heedful.config import PARTS
from heedful.data.batches import BatchPlan
from heedful.data.corpus import Corpus
from heedful.data.encoded import encode
from heedful.data.examples import PackedPairs, TranslationExamples
from heedful.data.packing import pack
from heedful.data.phrasebook import phrasebook
from heedful.data.puzzles import reverse_pairs
from heedful.data.tokenizer import Tokenizer
from heedful.errors import InputError
from heedful.evaluation import TokenScores, score_text
from heedful.generation.translator import Translator
from heedful.jobs.job import SCORED_TOKENS, Job, starting_point
from heedful.scores.passport import keep
from heedful.scores.units import bleu_units

# What a shape costs to compile, in tokens that could be trained on meanwhile: about 7 seconds at 7,000 tokens/s.
COMPILE_TOKENS = 50_000
HELD_OUT = 2000  # sentences in the validation and test parts of a built-in corpus
SAMPLES = 3  # translations shown at a validation


def corpora(config):
    """Return the corpora of a run by part: train, valid, and test where there is one.

    Raises:
        InputError: files are missing; names them, and where such text comes from.
    """
    data = config.data
    if data.corpus == "phrasebook":
        sizes = {"train": data.sentences, "valid": HELD_OUT, "test": HELD_OUT, "unseen": HELD_OUT}
        return {part: _phrasebook(part, size) for part, size in sizes.items()}
    if data.corpus == "reverse":
        sizes = {"train": data.sentences, "valid": HELD_OUT, "test": HELD_OUT}
        return {
            part: Corpus.from_pairs(
                reverse_pairs(part, size, data.length, counted_in=data.repeats_counted_in), f"reverse/{part}"
            )
            for part, size in sizes.items()
        }
    if not data.train or not data.valid:
        raise InputError("data.train and data.valid must name text files (or choose a built-in data.corpus).")
    paths = {"train": data.train, "valid": data.valid} | ({"test": data.test} if data.test else {})
    return {part: Corpus.from_files(files, data.origin) for part, files in paths.items()}


@functools.lru_cache(maxsize=8)
def _phrasebook(part, size):
    """Return a part of the phrasebook; writing the held-out ones takes seconds, and a training opens them twice."""
    return Corpus.from_pairs(phrasebook(part, size), f"phrasebook/{part}")


def train_tokenizers(config, corpus, sides=(0, 1)):
    """Learn the vocabularies of both sides, or of some, from the training text; one object for all when joint."""
    options = config.tokenizer.keywords()
    if config.tokenizer.joint:
        joint = Tokenizer.train(itertools.chain.from_iterable(corpus), **options)
        return joint, joint
    return tuple(Tokenizer.train((pair[side] for pair in corpus), **options) for side in sides)


def examples_of(config, pairs):
    """Return encoded training pairs as the examples that a config asks for."""
    lengths = pairs.source.lengths + 1, pairs.target.lengths + 1  # room for the end token
    if not config.data.pack_tokens:
        return TranslationExamples(pairs, plan_batches(config, lengths))
    rows = pack(lengths[0].tolist(), config.data.pack_tokens, lengths[1].tolist())
    filled = [np.add.reduceat(side[np.concatenate(rows)], np.cumsum([0, *map(len, rows[:-1])])) for side in lengths]
    return PackedPairs(pairs, rows, plan_batches(config, filled))


def plan_batches(config, lengths):
    """Plan the batches of a run over the lengths of its rows: of the source, and of the target (N,)."""
    data, train = config.data, config.train
    # A shape is worth compiling when it saves that much padding over the whole training.
    epoch_tokens = int(sum(side.sum() for side in lengths))
    row_tokens = epoch_tokens / len(lengths[0])
    batch_tokens = data.batch_sentences * row_tokens if data.batch_sentences else 2 * data.batch_tokens
    trained_tokens = (data.planned_updates or train.updates) * train.accumulate * batch_tokens
    price = COMPILE_TOKENS * epoch_tokens / max(trained_tokens, epoch_tokens)
    return BatchPlan(
        *lengths, batch_tokens=data.batch_tokens, batch_sentences=data.batch_sentences, max_shapes=data.max_shapes,
        shape_price=price, seed=train.seed,
    )  # fmt: skip


def scored_pairs(run, corpus, cache=None):
    """Return the pairs of a corpus that a run's model can read as examples to score, in batches of few shapes."""
    pairs = encode(corpus, run.source_tokenizer, run.target_tokenizer, run.config.model.max_length, cache)
    lengths = pairs.source.lengths + 1, pairs.target.lengths + 1
    batch_tokens = min(run.config.data.batch_tokens, SCORED_TOKENS)
    return TranslationExamples(pairs, BatchPlan(*lengths, batch_tokens=batch_tokens, max_shapes=3))


class TranslationJob(Job):
    """Trains a `Transformer` on pairs of sentences; validation decodes some of them."""

    TAKEN_OVER = {"embedding/": "source_embedding/", "text_input/": "source_input/", "encoder/": "encoder/"}

    @staticmethod
    def open_text(config, files, origin=""):
        return Corpus.from_files(files, origin)

    @classmethod
    def find_corpora(cls, config):
        return corpora(config)

    @staticmethod
    def prepare(config, corpora):
        corpus = corpora["train"]
        if config.data.corpus != "files" and (named := [part for part in PARTS if getattr(config.data, part)]):
            raise InputError(
                f"data.corpus = {config.data.corpus!r} brings its own text, and data.{named[0]} names files: set "
                "data.corpus = 'files' to take those."
            )
        config = config.planned_as(config)
        if not config.train.start_from:
            return config, train_tokenizers(config, corpus)
        before, config = starting_point(config)
        if config.model.tie == "all":
            raise InputError("train.start_from brings its own source vocabulary: set model.tie to 'target' or 'none'.")
        config = dataclasses.replace(config, tokenizer=dataclasses.replace(config.tokenizer, joint=False))
        return config, (before.tokenizer, train_tokenizers(config, corpus, sides=(1,))[0])

    def read_examples(self):
        data, cache = self.config.data, encoded_folder()
        tokenizers = self.run.source_tokenizer, self.run.target_tokenizer
        pairs = encode(self.corpora["train"], *tokenizers, data.max_tokens, cache)
        self.report(f"training text: {pairs.filtered}")
        return examples_of(self.config, pairs)

    def scored_examples(self, part):
        return scored_pairs(self.run, self.corpora[part], encoded_folder())

    def start(self, model):
        tokenizers = self.run.source_tokenizer, self.run.target_tokenizer
        self.engine = Translator(model, *tokenizers, self.config.decode)
        self._token_scores = TokenScores(model, self.scored["valid"])

    def validate(self):
        scores = self._token_scores()
        del scores["tokens"]  # the same at every validation
        count = self.config.train.validate_sentences
        if count:
            pairs = list(itertools.islice(self.corpora["valid"], count))
            self.engine.refresh()
            made, text_scores = translate_and_score(self.engine, pairs)
            scores |= {name: text_scores[name] for name in ("bleu", "chrf")}
            scores["samples"] = [
                f"{source}  ->  {hypothesis}   [{reference}]"
                for (source, reference), hypothesis in zip(pairs[:SAMPLES], made, strict=False)
            ]
        return scores

    @staticmethod
    def evaluate(run, corpus, engine=None):
        """Score a run on a parallel text; keep the result in its scores.json, and return it.

        Returns:
            bleu, chrf, exact, seconds and tokens per second of decoding, signatures, a 95 % interval; loss, perplexity
            and accuracy of the model as trained, whatever it decodes in; and the passport of `scores/passport.py`.
        """
        translator = engine or Translator.from_run(run)
        pairs = list(corpus)
        if not pairs:
            raise InputError(f"{corpus.name} is empty.")
        began = time.monotonic()
        cut = []
        made, scores = translate_and_score(translator, pairs, cut.append)
        seconds = time.monotonic() - began
        tokens = sum(len(ids) for ids in run.target_tokenizer.encode_batch(made))
        readable = scored_pairs(run, corpus)
        scores |= TokenScores(translator.trained_model, readable)()
        scores |= {
            "sentences": len(pairs),
            "sources_cut": len(cut),
            "sentences_of_loss": len(readable.pairs.source),
            "seconds": round(seconds, 2),
            "output_tokens_per_second": round(tokens / seconds, 1),
        }
        units = {"bleu": bleu_units(made, [reference for _, reference in pairs], run.target_tokenizer.lowercase)}
        return keep(run, corpus, scores, units, made, translator.decode)

    @staticmethod
    def describe(scores):
        text = (
            f"BLEU {scores['bleu']:.2f}  chrF {scores['chrf']:.2f}  exact {scores['exact']:.2%}  "
            f"perplexity {scores['perplexity']:.3f}  on {scores['sentences']:,} sentences"
        )
        if scores["sources_cut"]:
            text += f", of which {scores['sources_cut']:,} were too long to be read to their end"
        if left_out := scores["sentences"] - scores["sentences_of_loss"]:
            text += f"; the perplexity is without {left_out:,} that are too long or empty"
        return text

    def score_test(self, part, corpus):
        self.engine.refresh()
        scores = self.evaluate(self.run, corpus, self.engine)
        self.report(f"{part}: {self.describe(scores)}  ({scores['signatures']['bleu']})")


def translate_and_score(translator, pairs, warn=None):
    """Return (translations, text scores) of a list of (source, reference); case counts if the model can write it.

    `warn` is called with a message for each source that is longer than the model reads.
    """
    made = translator.translate([source for source, _ in pairs], warn)
    return made, score_text(made, [reference for _, reference in pairs], translator.target_tokenizer.lowercase)
