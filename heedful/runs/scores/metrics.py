"""Metrics as functions of summed counts of sentences or texts, so that scores can be resampled.

Axes: N units (sentences, texts, batches of a language model), C counts of each.
"""

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sacrebleu
from sacrebleu.metrics.helpers import extract_all_char_ngrams, extract_word_ngrams

from heedful.core.plugins import find_metric, metric_names

DRAWS, SEED = 1000, 12345  # as in sacrebleu
CHRF_ORDER, WORD_ORDER = 6, 2  # longest n-gram in characters, as in sacrebleu, and in words in chrF++
MIN_UNITS = 30  # fewest units for which bootstrap samples are meaningful


@dataclass(frozen=True)
class Metric:
    """A score as a function of summed counts, which can be computed for any sample of a text.

    Another package adds one with the entry point `heedful.metrics: NAME = "package.module:METRIC"`.

    Args:
        score: function from summed counts (C,) to the score.
        num_counts: number of counts per unit, C.
        digits: decimal places to show.
        count_texts: for a metric of translations, a function (hypotheses, references, lowercase) -> counts (N, C).
            `heedful evaluate` reports every such metric under its name, with an interval.
        signature: for a metric of translations, a function lowercase -> text that says how it is computed; `compare`
            refuses scores with different signatures.
        options: keyword arguments that `count_texts` and `signature` take too: `tokenize`, the name of a tokenizer of
            sacrebleu, and `more_references`, further references of each sentence.
        keep_empty: whether units whose second count is 0 count; otherwise they have nothing to score.
        on_request: whether `heedful evaluate` reports it only where it is asked for (`--metric`).
        score_unit: as `score`, for the counts of one unit; None: `score`.
    """

    score: Callable[[np.ndarray], float]
    num_counts: int
    digits: int
    count_texts: Callable[..., np.ndarray] | None = None
    signature: Callable[..., str] | None = None
    options: tuple[str, ...] = ()
    keep_empty: bool = False
    on_request: bool = False
    score_unit: Callable[[np.ndarray], float] | None = None


def text_metrics() -> dict[str, Metric]:
    """Return the metrics of translations that are always reported, by name."""
    metrics = {name: find_metric(name) for name in metric_names()}
    return {name: metric for name, metric in metrics.items() if metric.count_texts and not metric.on_request}


def text_counts(
    hypotheses: Sequence[str], references: Sequence[str], lowercase: bool, **options: Any
) -> dict[str, np.ndarray]:
    """Return the counts (N, C) of every metric of translations by name; `options` as in `Metric`."""
    return {
        name: metric.count_texts(hypotheses, references, lowercase, **_known(metric, options))
        for name, metric in text_metrics().items()
        if metric.count_texts
    }


def text_signatures(lowercase: bool, **options: Any) -> dict[str, str]:
    """Return the signature of every metric of translations that has one, by name; `options` as in `Metric`."""
    return {
        name: metric.signature(lowercase, **_known(metric, options))
        for name, metric in text_metrics().items()
        if metric.signature
    }


def _known(metric, options):
    return {name: value for name, value in options.items() if name in metric.options}


def bleu_counts(
    hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = False, *, tokenize: str = "13a",
    more_references: Sequence[Sequence[str]] = (),
) -> np.ndarray:  # fmt: skip
    """Return the counts of each sentence for BLEU (N, 10)."""
    # The effective order changes no counts, and avoids a warning.
    metric = sacrebleu.BLEU(lowercase=lowercase, effective_order=True, tokenize=tokenize)
    groups = _references(references, more_references)
    scores = (metric.sentence_score(text, group) for text, group in zip(hypotheses, groups, strict=True))
    return np.array([[*score.counts, *score.totals, score.sys_len, score.ref_len] for score in scores], float)


def _references(first, more):
    """Return the list of references of each sentence."""
    return [[one, *others] for one, others in zip(first, more or [()] * len(first), strict=True)]


def _bleu(sums):
    correct, total = sums[:4].astype(int).tolist(), sums[4:8].astype(int).tolist()
    return sacrebleu.BLEU.compute_bleu(correct, total, int(sums[8]), int(sums[9]), smooth_method="exp").score


def _sentence_bleu(counts):
    """Return the BLEU of one sentence, over the orders of n-grams that it has, as in sacrebleu."""
    correct, total = counts[:4].astype(int).tolist(), counts[4:8].astype(int).tolist()
    lengths = int(counts[8]), int(counts[9])
    return sacrebleu.BLEU.compute_bleu(correct, total, *lengths, smooth_method="exp", effective_order=True).score


def chrf_counts(
    hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = False,
    *, more_references: Sequence[Sequence[str]] = (), words: int = 0,
) -> np.ndarray:  # fmt: skip
    """Return the counts of each sentence for chrF (N, 18), see `ngram_counts`, for n-grams of 1 to 6 characters.

    White space is left out (Popovic 2015). Of several references, the one with the highest chrF counts, as in
    sacrebleu. With `words`, n-grams of up to so many words follow (chrF++, Popovic 2017).
    """
    split = sacrebleu.CHRF()._remove_punctuation

    def ngrams(text):
        text = text.lower() if lowercase else text
        of_words = [extract_word_ngrams(split(text), order + 1) for order in range(words)]
        return extract_all_char_ngrams(text, CHRF_ORDER) + of_words

    rows = []
    for text, group in zip(hypotheses, _references(references, more_references), strict=True):
        written = ngrams(text)
        counts = [
            [count for pair in zip(written, ngrams(reference), strict=True) for count in ngram_counts(*pair)]
            for reference in group
        ]
        rows.append(max(counts, key=lambda one: mean_f_score(np.array(one, float))) if len(counts) > 1 else counts[0])
    return np.array(rows, float)


def ngram_counts(hypothesis: Counter, wanted: Counter) -> tuple[int, int, int]:
    """Return the numbers of n-grams of a hypothesis and of its reference, and of those that match.

    As in sacrebleu, a hypothesis counts 0 if its reference has no n-gram of this order.
    """
    return hypothesis.total() if wanted else 0, wanted.total(), (hypothesis & wanted).total()


def mean_f_score(sums: np.ndarray, beta: float = 2.0) -> float:
    """Return 100 times the F score of mean precision and recall, from (hypothesis, reference, matches) of each order.

    Orders that hypothesis or reference lack are left out, as in sacrebleu.
    """
    predicted, wanted, matches = sums.reshape(-1, 3)[(sums.reshape(-1, 3)[:, :2] > 0).all(axis=1)].T
    if not matches.sum():
        return 0.0
    precision, recall = (matches / predicted).mean(), (matches / wanted).mean()
    return float(100 * (1 + beta**2) * precision * recall / (beta**2 * precision + recall))


def _bleu_signature(lowercase, tokenize="13a", more_references=()):
    return _signature(sacrebleu.BLEU(lowercase=lowercase, tokenize=tokenize), more_references)


def _chrf_signature(lowercase, more_references=()):
    return _signature(sacrebleu.CHRF(lowercase=lowercase), more_references)


def ter_counts(
    hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = False,
    *, more_references: Sequence[Sequence[str]] = (),
) -> np.ndarray:  # fmt: skip
    """Return the counts of each sentence for TER (N, 2): edits, and words of the reference (Snover et al. 2006)."""
    metric = sacrebleu.TER(case_sensitive=not lowercase)
    groups = _references(references, more_references)
    scores = (metric.sentence_score(text, group) for text, group in zip(hypotheses, groups, strict=True))
    return np.array([[score.num_edits, score.ref_length] for score in scores], float)


def _ter_signature(lowercase, more_references=()):
    return _signature(sacrebleu.TER(case_sensitive=not lowercase), more_references)


def _chrf_with_words_signature(lowercase, more_references=()):
    return _signature(sacrebleu.CHRF(lowercase=lowercase, word_order=WORD_ORDER), more_references)


def _signature(metric, more_references):
    numbers = sorted({1 + len(others) for others in more_references}) or [1]
    metric.corpus_score([""], [[""]] * numbers[0])  # which completes the signature
    return str(metric.get_signature())


# Counts of BLEU: matching n-grams and all n-grams of 1 to 4 tokens, length, length of the reference.
BLEU = Metric(
    _bleu, 10, 2, bleu_counts, _bleu_signature, ("tokenize", "more_references"), keep_empty=True,
    score_unit=_sentence_bleu,
)  # fmt: skip
CHRF = Metric(mean_f_score, 3 * CHRF_ORDER, 2, chrf_counts, _chrf_signature, ("more_references",), keep_empty=True)
CHRF_WITH_WORDS = Metric(
    mean_f_score, 3 * (CHRF_ORDER + WORD_ORDER), 2, functools.partial(chrf_counts, words=WORD_ORDER),
    _chrf_with_words_signature, ("more_references",), keep_empty=True, on_request=True,
)  # fmt: skip
TER = Metric(
    lambda sums: 100 * sums[0] / sums[1] if sums[1] else 100.0 * (sums[0] > 0), 2, 2, ter_counts, _ter_signature,
    ("more_references",), keep_empty=True, on_request=True,
)  # fmt: skip
ACCURACY = Metric(lambda sums: sums[0] / sums[1], 2, 4)  # correct, total
LOSS = Metric(lambda sums: sums[0] / sums[1], 2, 4)  # nats, tokens
BITS_PER_BYTE = Metric(lambda sums: sums[0] / math.log(2) / sums[1], 2, 4)  # nats, bytes


def draws(count: int, number: int = DRAWS, seed: int = SEED) -> Iterator[np.ndarray]:
    """Yield, for each of `number` bootstrap samples of `count` units, how often it has each unit (N,)."""
    random = np.random.default_rng(seed)
    for _ in range(number):
        yield np.bincount(random.integers(count, size=count), minlength=count)


def sample_scores(metric: str, units: np.ndarray) -> np.ndarray:
    """Return the score of each bootstrap sample (number,); equal numbers of units have equal samples."""
    return np.array([find_metric(metric).score(times @ units) for times in draws(len(units))])


def unit_scores(metric: str, units: np.ndarray) -> np.ndarray:
    """Return the score of each unit (N,) from counts (N, C)."""
    named = find_metric(metric)
    score = named.score_unit or named.score
    return np.array([score(counts) for counts in units])


def interval(metric: str, units: np.ndarray) -> tuple[float, float] | None:
    """Return the bounds between which 95 % of bootstrap samples score (Koehn 2004); None for too few units.

    Args:
        metric: name of a metric.
        units: counts (N, C).
    """
    return bounds(sample_scores(metric, units)) if len(units) >= MIN_UNITS else None


def bounds(sampled: np.ndarray) -> tuple[float, float]:
    """Return the bounds of the middle 95 % of sampled scores."""
    low, high = np.percentile(sampled, [2.5, 97.5])
    return float(low), float(high)


def p_value(difference: float, sampled: np.ndarray) -> float:
    """Return the two-sided p-value of a difference, from the differences of paired samples."""
    beyond = np.abs(sampled - sampled.mean()) >= abs(difference)
    return float((beyond.sum() + 1) / (len(sampled) + 1))
