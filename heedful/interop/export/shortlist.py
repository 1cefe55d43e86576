"""Shortlists: the entries of the vocabulary that an engine considers for a text, so that its output layer is smaller.

They are the likely translations of each token of the source, its text in the target (names, numbers), and the most
frequent tokens of the target (Jean et al. 2015, section 3.2.1).
"""

import itertools
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from heedful.core.errors import InputError, counted
from heedful.core.progress import Report
from heedful.core.special_tokens import END_ID, FIRST_ID
from heedful.data.corpus import Corpus
from heedful.data.tokenizer import SPACE
from heedful.data.word_alignment import TranslationTable

if TYPE_CHECKING:
    from heedful.runs.run import Run

MAX_LINES = 500_000  # pairs of lines that are learned from at most, drawn from the whole text
MAX_WORD_PAIRS = 50_000_000  # of tokens in the same pair of lines
CHUNK = 10_000  # lines that are encoded together
TRANSLATIONS, FREQUENT = 50, 100  # tokens for each token of the source, and for every text


class Shortlist(NamedTuple):
    """The target ids that are considered."""

    always: list[int]
    """For every text; the end token is one of them."""
    translations: list[list[int]]
    """For a text with a source token: by its id, most likely first."""

    def of_text(self, source: list[int]) -> list[int]:
        """Return the sorted ids of the target tokens that are considered for source ids."""
        return sorted({*self.always, *(target for token in set(source) for target in self.translations[token])})


def parallel_text(run: "Run", files: Sequence[str] = ()) -> Corpus:
    """Return the parallel text from which a shortlist is learned: two files or a .tsv, or the training text of the run.

    Raises:
        InputError: the text is missing.
    """
    try:
        return Corpus.from_files(files) if files else run.task.find_corpora(run.config)["train"]
    except InputError as error:
        advice = "A shortlist is learned from parallel text, see heedful export --shortlist"
        raise InputError(f"{advice}: {error}") from error


def learn_shortlist(run: "Run", text: Corpus, report: Report) -> Shortlist:
    """Return the shortlist of a translator, learned from parallel text.

    Raises:
        InputError: the text has no pairs of lines that are as short as those in training.
    """
    began = time.monotonic()
    pairs = _encoded(run, _drawn(text))
    if not pairs:
        raise InputError("A shortlist is learned from parallel text, but there are no pairs of lines of usual length.")
    report(f"learning a shortlist from {counted(len(pairs), 'pair')} of lines ...")
    table = TranslationTable(pairs)
    counts = np.bincount(np.concatenate([target for _, target in pairs]), minlength=len(run.target_tokenizer))
    frequent = [int(token) for token in np.argsort(-counts, kind="stable")[:FREQUENT] if counts[token]]
    always = dict.fromkeys([END_ID, *run.target_tokenizer.prefix_ids, *frequent])
    shortlist = Shortlist(list(always), _translations(run, table))
    report(f"learned in {time.monotonic() - began:.0f} s")
    return shortlist


def _drawn(text):
    """Return up to `MAX_LINES` pairs of lines in random order, each pair of the text with the same probability."""
    random = np.random.default_rng(0)
    drawn: list[tuple[str, str]] = []
    for number, (source, target, *_) in enumerate(text):
        if len(drawn) < MAX_LINES:
            drawn.append((source, target))
        elif (place := int(random.integers(number + 1))) < MAX_LINES:
            drawn[place] = source, target
    return [drawn[index] for index in random.permutation(len(drawn))]


def _encoded(run, lines):
    """Return the ids of pairs of lines as long as those in training, up to `MAX_WORD_PAIRS` pairs of tokens."""
    limit = run.config.data.max_tokens or run.config.model.max_length
    pairs, size = [], 0
    for start in range(0, len(lines), CHUNK):
        sides = zip(*lines[start : start + CHUNK], strict=True)
        tokenizers = run.source_tokenizer, run.target_tokenizer
        rows = (tokenizer.encode_batch(side) for tokenizer, side in zip(tokenizers, sides, strict=True))
        for source, target in zip(*rows, strict=True):
            if 0 < len(source) <= limit and 0 < len(target) <= limit:
                size += len(source) * len(target)
                pairs.append((np.array(source, np.int32), np.array(target, np.int32)))
        if size > MAX_WORD_PAIRS:
            break
    return pairs


def _translations(run, table):
    """Return by source id the most likely translations, and the same text in the target, as a name is written."""
    order = np.lexsort((-table.probabilities, table.sources))
    starts = np.searchsorted(table.sources, np.arange(len(run.source_tokenizer) + 1)).tolist()
    results = []
    for token, (start, stop) in enumerate(itertools.pairwise(starts)):
        likely = table.targets[order[start : min(stop, start + TRANSLATIONS)]].tolist()
        results.append(list(dict.fromkeys([*likely, *(_copies(run, token) if token >= FIRST_ID else [])])))
    return results


def _copies(run, token):
    """Return the ids that a target has for the text of a source token, within a text and at its beginning."""
    target, spelled = run.target_tokenizer, run.source_tokenizer.lookup(token)
    same = [target.lookup(form) for form in (spelled, SPACE + spelled, spelled.removeprefix(SPACE))]
    return [one for one in same if one is not None] + target.encode(run.source_tokenizer.decode([token]))
