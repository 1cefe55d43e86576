"""Shortlists: the entries of the vocabulary that an engine considers for a text, so that its output layer is smaller.

They are the likely translations of each token of the source, the same tokens in the target (names, numbers), and the
most frequent tokens of the target (Jean et al. 2015, section 3.2.1).
"""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from heedful.core.errors import InputError, counted
from heedful.core.progress import Report
from heedful.core.special_tokens import END_ID, FIRST_ID
from heedful.data.corpus import Corpus
from heedful.data.word_alignment import TranslationTable

if TYPE_CHECKING:
    from heedful.runs.run import Run

MAX_LINES = 1_000_000  # pairs of lines that are read at most
MAX_WORD_PAIRS = 200_000_000  # pairs of tokens in the same pair of lines; each takes 4 bytes of memory
TRANSLATIONS, FREQUENT = 50, 100  # tokens for each token of the source, and for every text


class Shortlist(NamedTuple):
    """The target ids that are considered."""

    always: list[int]
    """For every text; the end token is one of them."""
    translations: list[list[int]]
    """For a text with a source token: by its id, most likely first."""

    def of_text(self, source: list[int]) -> list[int]:
        """Return the target ids for source ids, each once, in their order."""
        return sorted({*self.always, *(target for token in set(source) for target in self.translations[token])})


def parallel_text(run: "Run", files: Sequence[str] = ()) -> Corpus:
    """Return the text that a shortlist of a run is learned from: in files, or its training text.

    Raises:
        InputError: the text is missing.
    """
    try:
        return run.scored_corpus(files) if files else run.task.find_corpora(run.config)["train"]
    except InputError as error:
        raise InputError(
            f"A shortlist is learned from parallel text, see heedful export --shortlist: {error}"
        ) from error


def learn_shortlist(run: "Run", text: Corpus, report: Report) -> Shortlist:
    """Return the shortlist of a translator, learned from parallel text.

    Raises:
        InputError: the text has no pairs of lines.
    """
    lines = list(itertools.islice(text, MAX_LINES))
    sides = [[pair[side] for pair in lines if pair[0] and pair[1]] for side in (0, 1)]
    report(f"learning a shortlist from {counted(len(sides[0]), 'pair')} of lines ...")
    sources, targets = (
        [np.array(ids, np.int64) for ids in tokenizer.encode_batch(side)]
        for tokenizer, side in zip((run.source_tokenizer, run.target_tokenizer), sides, strict=True)
    )
    pairs = list(zip(sources, targets, strict=True))
    if not pairs:
        raise InputError("A shortlist is learned from parallel text, but there are no pairs of lines.")
    sizes = np.cumsum([len(source) * len(target) for source, target in pairs])
    table = TranslationTable(pairs[: max(1, int(np.searchsorted(sizes, MAX_WORD_PAIRS)))])
    counts = np.bincount(np.concatenate(targets), minlength=len(run.target_tokenizer))
    frequent = [int(token) for token in np.argsort(-counts, kind="stable")[:FREQUENT] if counts[token]]
    always = dict.fromkeys([END_ID, *run.target_tokenizer.prefix_ids, *frequent])
    return Shortlist(list(always), _translations(run, table))


def _translations(run, table):
    """Return by source id the most likely translations, and the token of the target that is spelled the same."""
    order = np.lexsort((-table.probabilities, table.sources))
    targets = table.targets[order].tolist()
    starts = np.searchsorted(table.sources, np.arange(len(run.source_tokenizer) + 1)).tolist()
    results = []
    for token, (start, stop) in enumerate(itertools.pairwise(starts)):
        same = run.target_tokenizer.lookup(run.source_tokenizer.lookup(token))
        copied = [] if same is None or token < FIRST_ID else [same]
        results.append(list(dict.fromkeys([*targets[start : min(stop, start + TRANSLATIONS)], *copied])))
    return results
