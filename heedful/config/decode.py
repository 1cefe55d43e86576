"""The section [decode] of a config."""

import dataclasses
from dataclasses import dataclass
from typing import Literal

from heedful.errors import InputError
from heedful.validation import at_least, at_most, fraction, positive

DRAWING = ("temperature", "top_k", "top_p", "min_p")  # settings that only sampling uses
SEARCHING = ("coverage_penalty", "stop")  # settings that only beam search uses
NORMALISING = ("length_penalty", "length_norm")  # settings that only scores depend on
OF_SOURCE = ("coverage_penalty", "min_ratio", "max_ratio", "max_extra")  # settings that need a source text


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """How text is decoded."""

    batch_size: int = 64
    """Number of sentences decoded together."""
    beam_size: int = 1
    """Number of hypotheses kept per sentence. 1: greedy search."""
    n_best: int = 1
    """Number of results per line, best first."""
    length_penalty: float = 1.0
    """Exponent a of the length normalisation of scores in beam search. 0: plain log-probabilities, which favour short
    text."""
    length_norm: Literal["gnmt", "average"] = "average"
    """Scores are divided by ((5 + length) / 6)^a (gnmt) or length^a (average)."""
    coverage_penalty: float = 0.0
    """Strength of the penalty for source tokens that received little attention (Wu et al. 2016)."""
    stop: Literal["attainable", "width"] = "attainable"
    """When beam search ends: as soon as no better result is possible (attainable), or when beam_size hypotheses have
    ended (width)."""
    precision: Literal["as_trained", "float32", "bfloat16", "int8"] = "as_trained"
    """Precision of the products with weights. as_trained: bfloat16 for a model that was trained in bfloat16, float32
    for any other. bfloat16 and int8 are faster on hardware that supports them, but a translation may occasionally
    depend on the batch size. All else is float32."""
    sample: bool = False
    """Sample tokens instead of searching for the most likely ones."""
    temperature: float = 1.0
    """Sampling: below 1 sharpens the distribution, above 1 flattens it."""
    top_k: int = 0
    """Sampling: only from this many most likely tokens. 0: all."""
    top_p: float = 1.0
    """Sampling: only from the smallest set of tokens with this total probability."""
    min_p: float = 0.0
    """Sampling: only from tokens with at least this fraction of the highest probability."""
    seed: int = 1
    """Sampling: the same seed gives the same text for any batch size."""
    repetition_penalty: float = 1.0
    """Above 1: makes tokens that were already generated less likely (Keskar et al. 2019)."""
    no_repeat_ngram: int = 0
    """Length of the n-grams of tokens that may not occur twice. 0: no limit. generate: prompt and text must fit the
    context."""
    forbidden: tuple[str, ...] = ()
    """Tokens, as spelled in the vocabulary, that are never generated."""
    min_length: int = 0
    """Minimum length of a result in tokens."""
    min_ratio: float = 0.0
    """translate: minimum length of a result in tokens per source token."""
    max_length: int = 0
    """Maximum length of a result in tokens. 0: the limit of the model (generate: 200)."""
    max_ratio: float = 2.0
    """translate: maximum length of a result in tokens per source token, before `max_extra` is added."""
    max_extra: int = 10
    """translate: number of tokens that a result may have beyond `max_ratio`."""

    def __post_init__(self):
        positive(self, "batch_size", "beam_size", "n_best", "max_ratio", "temperature", "repetition_penalty")
        at_least(self, 0, "max_extra", "length_penalty", "coverage_penalty", "top_k", "no_repeat_ngram", "seed")
        at_least(self, 0, "min_length", "max_length", "min_ratio")
        at_most(self, batch_size=10**5, beam_size=10**4, n_best=10**4, max_length=10**7, seed=2**32 - 1)
        fraction(self, "min_p")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p ({self.top_p}) must be above 0 and at most 1.")
        if self.max_length and self.min_length > self.max_length:
            raise InputError(f"min_length ({self.min_length}) cannot exceed max_length ({self.max_length}).")
        if self.min_ratio > self.max_ratio:
            raise InputError(f"min_ratio ({self.min_ratio}) cannot exceed max_ratio ({self.max_ratio}).")
        if self.sample and self.beam_size > 1:
            raise InputError("Sampling has no beam: set beam_size = 1, or sample = false.")
        if not self.sample and self.n_best > self.beam_size:
            raise InputError(
                f"n_best ({self.n_best}) cannot exceed beam_size ({self.beam_size}), unless tokens are sampled."
            )

    def for_call(self, **options) -> "DecodeConfig":
        """Return the settings, with `options` replacing some of them.

        Raises:
            InputError: values contradict each other, or one of the options would have no effect.
        """
        settings = dataclasses.replace(self, **options)
        settings.refuse_idle(options)
        return settings

    def refuse_idle(self, names, scored: bool = True, clients_sample: bool = True) -> None:
        """Raise `InputError` if `names` contains a setting that this search does not use.

        Args:
            names: of the settings.
            scored: whether scores are computed by greedy search, for which settings of their length count.
            clients_sample: whether others may ask for samples, for which the seed counts.
        """
        if not self.sample and not clients_sample and "seed" in names:
            raise InputError("seed applies to sampling only: set sample too.")
        if self.beam_size == 1 and not scored and (idle := [name for name in NORMALISING if name in names]):
            raise InputError(f"{idle[0]} applies to scores only: set a beam_size above 1.")
        if not self.length_penalty and "length_norm" in names:
            raise InputError("length_norm needs a length_penalty above 0.")
        if not self.sample and (idle := [name for name in DRAWING if name in names]):
            raise InputError(f"{idle[0]} applies to sampling only: set sample too.")
        if self.beam_size == 1 and (idle := [name for name in SEARCHING if name in names]):
            raise InputError(f"{idle[0]} applies to beam search only: set a beam_size above 1.")

    def length_limit(self, source_length: int, model_limit: int) -> int:
        """Return the maximum result length for `source_length` tokens and a model limited to `model_limit` tokens."""
        most = min(int(source_length * self.max_ratio + self.max_extra), model_limit)
        return min(most, self.max_length) if self.max_length else most
