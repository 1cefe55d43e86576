"""Pairs of lines whose protected spans are numbered tokens, from which a model learns to carry them."""

import hashlib
import zlib
from collections import Counter
from collections.abc import Iterator

import numpy as np

from heedful.config.protected import SLOTS, Protection
from heedful.data.corpus import Corpus
from heedful.data.markup.words import words_of

NOISE = 0.2  # share of the pairs without protected spans that get some
SHIFTED = 0.5  # share of the pairs whose numbers are drawn, not counted from 1, so that high ones are learned too
_MARKS = ".!?\u3002\uff01\uff1f"  # that end a sentence


def protected_corpus(corpus: Corpus, protection: Protection, noise: bool = False) -> Corpus:
    """Return a corpus of pairs with numbered tokens for the protected spans that both sides have.

    Args:
        corpus: of pairs.
        protection: finds spans.
        noise: whether some pairs without such spans get tokens too: for words that both sides have, or at their ends.
    """
    if not protection.numbered_kinds:
        return corpus

    def pairs() -> Iterator[tuple[str, str]]:
        for source, target, *_ in corpus:
            yield protected_pair(source, target, protection, noise)

    content = f"{corpus.fingerprint} {protection.fingerprint} {noise}"
    return Corpus(pairs, hashlib.sha256(content.encode()).hexdigest(), corpus.name)


def protected_pair(source: str, target: str, protection: Protection, noise: bool = False) -> tuple[str, str]:
    """Return a pair of lines with numbered tokens, see `protected_corpus`; equal pairs give equal results."""
    matched = _common_spans(source, target, protection)
    random = None
    if noise:
        random = np.random.default_rng(zlib.crc32(f"{source}\t{target}".encode(errors="surrogatepass")))
        if not matched and random.random() < NOISE:
            matched = _common_words(source, target)[: random.integers(1, 4)] or [_at_the_end(source, target)]
    if not matched:
        return source, target
    matched = sorted(matched)[: len(SLOTS)]
    numbers = np.arange(len(matched))
    if random is not None and random.random() < SHIFTED:
        numbers = np.sort(random.choice(len(SLOTS), len(matched), replace=False))
    tokens = [SLOTS[number] for number in numbers]
    return (
        _replaced(source, [one for one, _ in matched], tokens),
        _replaced(target, [other for _, other in matched], tokens),
    )


def _common_spans(source, target, protection):
    """Return the numbered spans of a source with those of the target that have the same text, in order."""
    spans = [span for span in protection.spans(source) if span.kind in protection.numbered_kinds]
    if not spans:
        return []
    free = [span for span in protection.spans(target) if span.kind in protection.numbered_kinds]
    matched = []
    for span in spans:
        text = source[span.start : span.end]
        same = next((one for one in free if target[one.start : one.end] == text), None)
        if same is not None:
            free.remove(same)
            matched.append((span[:2], same[:2]))
    return matched


def _common_words(source, target):
    """Return the words, of more than one letter, that both sides have once."""
    sides = [[(text[word.start : word.end], tuple(word)) for word in words_of(text)] for text in (source, target)]
    counts = [Counter(word for word, _ in side) for side in sides]
    once = [
        {word: span for word, span in side if len(word) > 1 and count[word] == 1}
        for side, count in zip(sides, counts, strict=True)
    ]
    return [(once[0][word], once[1][word]) for word in once[0] if word in once[1] and word[0].isalnum()]


def _at_the_end(source, target):
    """Return an empty span before the final punctuation of each side."""
    ends = [len(text.rstrip().rstrip(_MARKS).rstrip()) for text in (source, target)]
    return (ends[0], ends[0]), (ends[1], ends[1])


def _replaced(text, spans, tokens):
    """Return a text with tokens in the place of spans; an empty one gets a space before it."""
    for (start, end), token in sorted(zip(spans, tokens, strict=True), reverse=True):
        gap = " " if start == end and text[:start].strip() else ""
        text = text[:start] + gap + token + text[end:]
    return text
