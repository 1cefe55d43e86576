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
EXCHANGED = 0.5  # share of the pairs with terms of which one is exchanged


def with_terms(source: str, terms: Sequence[str]) -> str:
    """Return a source followed by the terms that its translation should have."""
    return "".join([source, *(f" {TERM} {term}" for term in terms)])


def terms_corpus(corpus: Corpus, share: float) -> Corpus:
    """Return a corpus of pairs; in a share of them, terms of the target follow the source.

    A model that could guess all terms would not learn to read them. So some are exchanged for a term of the pair
    before, in the target too.
    """
    if not share:
        return corpus

    def pairs() -> Iterator[tuple[str, str]]:
        other = ""
        for source, target, *_ in corpus:
            random = np.random.default_rng(zlib.crc32(f"{target}\t{source}".encode(errors="surrogatepass")))
            spans = _drawn(target, random) if random.random() < share else []
            terms = [target[start:end] for start, end in spans]
            if terms and other and random.random() < EXCHANGED:
                start, end = spans[0]
                target = target[:start] + other + target[end:]
                other, terms[0] = terms[0], other
            elif terms:
                other = terms[0]
            yield with_terms(source, terms), target

    content = f"{corpus.fingerprint} terms {share!r}"
    return Corpus(pairs, hashlib.sha256(content.encode()).hexdigest(), corpus.name)


def _drawn(target: str, random: np.random.Generator) -> list[tuple[int, int]]:
    """Return where up to `MAX_TERMS` parts of a target are, in any order, that do not overlap."""
    words = [word for word in words_of(target) if target[word.start].isalnum()]
    if not words:
        return []
    free, spans = np.ones(len(words), bool), []
    for _ in range(random.integers(1, MAX_TERMS + 1)):
        first = int(random.integers(len(words)))
        last = min(len(words), first + 1 + int(random.geometric(0.7) - 1) % MAX_WORDS)
        if free[first:last].all():
            free[first:last] = False
            spans.append((words[first].start, words[last - 1].end))
    return spans
