"""The data of translation: corpora, vocabularies, and encoded pairs in batches."""

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from heedful.config import Config
from heedful.config.languages import languages_of
from heedful.config.protected import SLOTS, protection_of
from heedful.core.errors import InputError
from heedful.data.batches import BatchPlan
from heedful.data.corpus import Corpus
from heedful.data.encoded import EncodedPairs, encode
from heedful.data.examples import PackedPairs, PlannedExamples, TranslationExamples
from heedful.data.fresh import FreshPairs
from heedful.data.markup.inline_terms import TERM, terms_corpus
from heedful.data.markup.protected_pairs import protected_corpus
from heedful.data.packing import pack
from heedful.data.phrasebook import phrasebook
from heedful.data.puzzles import draw_reverse_pairs, reverse_pairs
from heedful.data.sentences import sentences_of
from heedful.data.tokenizer import Tokenizer
from heedful.tasks.task import SCORED_TOKENS

if TYPE_CHECKING:
    from heedful.runs.run import Run

# Cost of compiling one shape, in tokens that could be trained on in that time: about 7 seconds at 7,000 tokens/s.
COMPILE_TOKENS = 50_000
LOOKED_AT = 10_000  # training lines in which sentences are counted
HELD_OUT = 2000  # sentences in the validation and test parts of a built-in corpus


def corpora(config: Config) -> dict[str, Corpus]:
    """Return the corpora of a run by part: train, valid, and test if there is one; the phrasebook also has `unseen`.

    Raises:
        InputError: files are missing; the message names them, and where such text comes from.
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


def protected(config: Config, corpus: Corpus, training: bool = False) -> Corpus:
    """Return a corpus as a model reads it, with numbered tokens for its protected spans.

    For `training`, some pairs get such tokens at random, and some sources are followed by terms.
    """
    corpus = protected_corpus(corpus, protection_of(config.data.protected), noise=training)
    return terms_corpus(corpus, config.data.terms) if training else corpus


def with_markup_tokens(config: Config) -> Config:
    """Return a config whose vocabularies have the tokens for protected spans and terms, if the model learns them.

    Raises:
        InputError: a new vocabulary would put a space after each of them.
    """
    wanted = (SLOTS if config.data.protected else ()) + ((TERM,) if config.data.terms else ())
    if wanted and config.tokenizer.prefix_space and not config.train.init_from:
        raise InputError(
            "tokenizer.prefix_space puts a space after each protected span and term too: set it to false, or leave out "
            "data.protected and data.terms."
        )
    tokens = config.tokenizer.new_tokens
    added = tuple(token for token in wanted if token not in tokens)
    return dataclasses.replace(config, tokenizer=dataclasses.replace(config.tokenizer, new_tokens=(*tokens, *added)))


def with_share_of_several(config: Config, corpus: Corpus) -> Config:
    """Return a config that says how many lines of its training text have several sentences."""
    if config.data.several_sentences is not None:
        return config
    language = languages_of(config)[0]
    several = [len(sentences_of(pair[0], language)) > 1 for pair in itertools.islice(corpus, LOOKED_AT)]
    share = round(sum(several) / max(1, len(several)), 4)
    return dataclasses.replace(config, data=dataclasses.replace(config.data, several_sentences=share))


@functools.lru_cache(maxsize=8)
def _phrasebook(part, size):
    """Return a part of the phrasebook; generating it takes seconds, and a training opens it twice."""
    return Corpus.from_pairs(phrasebook(part, size), f"phrasebook/{part}")


def train_tokenizers(config: Config, corpus: Corpus, sides: Sequence[int] = (0, 1)) -> tuple[Tokenizer, ...]:
    """Train the tokenizers of both sides, or of `sides`, on the training text; if joint, return it twice."""
    settings = config.tokenizer
    if settings.joint:
        joint = Tokenizer.train(itertools.chain.from_iterable(corpus), **settings.keywords())
        return joint, joint
    return tuple(Tokenizer.train((pair[side] for pair in corpus), **settings.keywords(side)) for side in sides)


def examples_of(config: Config, pairs: EncodedPairs) -> PlannedExamples:
    """Return encoded training pairs as examples in the form that a config sets."""
    lengths = [side + 1 for side in pairs.lengths]  # one more for the end token
    seed = config.train.seed
    if not config.data.pack_tokens:
        return TranslationExamples(pairs, plan_batches(config, lengths), seed)
    rows = pack(lengths[0], config.data.pack_tokens, lengths[1])
    row_lengths = [np.add.reduceat(side[rows.flat], rows.offsets[:-1]) for side in lengths]
    return PackedPairs(pairs, rows, plan_batches(config, row_lengths), seed)


def fresh_puzzles(config: Config, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer) -> FreshPairs:
    """Return the examples of the reversal puzzle, drawn afresh for every batch."""
    data = config.data
    sentences = data.batch_sentences or max(1, int(data.batch_tokens) // (data.length + 1))
    draw = functools.partial(draw_reverse_pairs, part="train", length=data.length, counted_in=data.repeats_counted_in)
    batches_per_epoch = data.sentences / sentences
    return FreshPairs(
        draw, source_tokenizer, target_tokenizer, sentences, data.length, batches_per_epoch, config.train.seed
    )


def plan_batches(config: Config, lengths: Sequence[np.ndarray]) -> BatchPlan:
    """Plan the batches of a run over the lengths of its rows: of the source, and of the target (N,)."""
    data, train = config.data, config.train
    # COMPILE_TOKENS is spent once; `BatchPlan` wants the padding that a shape must save in each epoch.
    epoch_tokens = int(sum(side.sum() for side in lengths))
    row_tokens = epoch_tokens / len(lengths[0])
    batch_tokens = (
        data.batch_sentences * row_tokens if data.batch_sentences else 2 * int(data.batch_tokens)
    )  # both sides
    trained_tokens = (data.planned_updates or train.updates) * train.accumulate_batches * batch_tokens
    price = COMPILE_TOKENS * epoch_tokens / max(trained_tokens, epoch_tokens)
    return BatchPlan(
        *lengths, batch_tokens=int(data.batch_tokens), batch_sentences=data.batch_sentences, max_shapes=data.max_shapes,
        shape_price=price, seed=train.seed,
    )  # fmt: skip


def scored_pairs(run: "Run", corpus: Corpus, cache: Path | None = None) -> TranslationExamples:
    """Return, as examples to score, those pairs of a corpus that fit a run's model, in batches of few shapes."""
    corpus = protected(run.config, corpus)
    pairs = encode(corpus, run.source_tokenizer, run.target_tokenizer, run.config.model.max_length, cache)
    lengths = pairs.source.lengths + 1, pairs.target.lengths + 1
    batch_tokens = min(int(run.config.data.batch_tokens), SCORED_TOKENS)
    plan = BatchPlan(*lengths, batch_tokens=batch_tokens, max_shapes=3, shape_price=COMPILE_TOKENS)
    return TranslationExamples(pairs, plan)
