"""Target terms after a source, from which a model learns to use them: the soft form of a glossary.

After Chen et al. 2020, "Lexical-Constraint-Aware Neural Machine Translation via Data Augmentation": in training the
terms are words of the target, drawn at random, so that no word alignment is needed.
"""

import hashlib
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from heedful.data.corpus import Corpus
from heedful.data.markup.words import words_of

TERM = "\u27e6+\u27e7"  # the token before each term
MAX_TERMS, MAX_WORDS = 3, 3  # drawn for a pair; words of a term


def with_terms(source: str, terms: Sequence[str]) -> str:
    """Return a source followed by the terms that its translation should have."""
    return "".join([source, *(f" {TERM} {term}" for term in terms)])


def terms_corpus(corpus: Corpus, share: float) -> Corpus:
    """Return a corpus of pairs; in a share of them, terms of the target follow the source."""
    if not share:
        return corpus

    def pairs() -> Iterator[tuple[str, str]]:
        for source, target, *_ in corpus:
            random = np.random.default_rng(zlib.crc32(f"{target}\t{source}".encode(errors="surrogatepass")))
            yield with_terms(source, _drawn(target, random) if random.random() < share else []), target

    content = f"{corpus.fingerprint} terms {share!r}"
    return Corpus(pairs, hashlib.sha256(content.encode()).hexdigest(), corpus.name)


def _drawn(target, random):
    """Return up to `MAX_TERMS` parts of a target, in any order, that do not overlap."""
    words = [word for word in words_of(target) if target[word.start].isalnum()]
    if not words:
        return []
    free, terms = np.ones(len(words), bool), []
    for _ in range(random.integers(1, MAX_TERMS + 1)):
        first = int(random.integers(len(words)))
        last = min(len(words), first + 1 + int(random.geometric(0.7) - 1) % MAX_WORDS)
        if free[first:last].all():
            free[first:last] = False
            terms.append(target[words[first].start : words[last - 1].end])
    return terms
