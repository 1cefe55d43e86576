"""The section [decode] of a config."""

import dataclasses
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any, Literal

from heedful.core.errors import InputError
from heedful.core.validation import at_least, at_most, fraction, positive

DRAWING = ("temperature", "top_k", "top_p", "min_p", "seed")  # settings that only sampling uses
SEARCHING = ("coverage_penalty", "stop")  # settings that only beam search uses
NORMALISING = ("length_penalty", "length_norm")  # settings that only scores depend on
# Settings that need a source text.
OF_SOURCE = ("coverage_penalty", "min_ratio", "max_ratio", "max_extra", "split", "markup")

SAME = "same"  # the setting changes no result, or is applied on our side
MISSING = "missing"  # the engine has no counterpart


def called(default: Any, *, transformers: str, ctranslate2: str, marian: str, varies: bool = False) -> Any:
    """Return a field of `DecodeConfig`.

    Args:
        default: its default.
        transformers, ctranslate2, marian: what the setting is called in these engines: a name, `SAME` or `MISSING`.
        varies: whether it is an input of the compiled search, so that a request with another value compiles nothing.
    """
    names = {"transformers": transformers, "ctranslate2": ctranslate2, "marian": marian}
    return field(default=default, metadata=names | {"varies": varies})


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """How text is decoded."""

    batch_size: int = called(64, transformers=SAME, ctranslate2="max_batch_size", marian=SAME)
    """Number of sentences decoded together."""
    beam_size: int = called(1, transformers="num_beams", ctranslate2="beam_size", marian="beam-size")
    """Number of hypotheses kept per sentence. 1: greedy search."""
    n_best: int = called(1, transformers=SAME, ctranslate2="num_hypotheses", marian=SAME)
    """Number of results per line, best first."""
    length_penalty: float = called(1.0, transformers="length_penalty", ctranslate2="length_penalty", marian="normalize")
    """Exponent a of the length normalisation of scores in beam search. 0: plain log-probabilities, which favour short
    text."""
    length_norm: Literal["gnmt", "average"] = called(
        "average", transformers=MISSING, ctranslate2=MISSING, marian=MISSING
    )
    """Scores are divided by ((5 + length) / 6)^a (gnmt) or length^a (average)."""
    coverage_penalty: float = called(0.0, transformers=MISSING, ctranslate2="coverage_penalty", marian=MISSING)
    """Strength of the penalty for source tokens that received little attention (Wu et al. 2016)."""
    stop: Literal["attainable", "width"] = called("attainable", transformers=SAME, ctranslate2=MISSING, marian=SAME)
    """When beam search ends: as soon as no better result is possible (attainable), or when beam_size hypotheses have
    ended (width)."""
    precision: Literal["as_trained", "float32", "bfloat16", "int8"] = called(
        "as_trained", transformers=SAME, ctranslate2=MISSING, marian=SAME
    )
    """Precision of the products with weights. as_trained: bfloat16 for a model that was trained in bfloat16, float32
    for any other. bfloat16 and int8 are faster on hardware that supports them, but a translation may occasionally
    depend on the batch size. All else is float32."""
    sample: bool = called(False, transformers="do_sample", ctranslate2=SAME, marian=MISSING)
    """Sample tokens instead of searching for the most likely ones."""
    temperature: float = called(
        1.0, transformers="temperature", ctranslate2="sampling_temperature", marian=MISSING, varies=True
    )
    """Sampling: below 1 sharpens the distribution, above 1 flattens it."""
    top_k: int = called(0, transformers="top_k", ctranslate2="sampling_topk", marian=MISSING)
    """Sampling: only from this many most likely tokens. 0: all."""
    top_p: float = called(1.0, transformers="top_p", ctranslate2="sampling_topp", marian=MISSING, varies=True)
    """Sampling: only from the smallest set of tokens with this total probability."""
    min_p: float = called(0.0, transformers="min_p", ctranslate2=MISSING, marian=MISSING, varies=True)
    """Sampling: only from tokens with at least this fraction of the highest probability."""
    seed: int = called(1, transformers=SAME, ctranslate2=SAME, marian=SAME)
    """Sampling: the same seed gives the same text for any batch size."""
    repetition_penalty: float = called(
        1.0, transformers="repetition_penalty", ctranslate2="repetition_penalty", marian=MISSING, varies=True
    )
    """Above 1: makes tokens that were already generated less likely (Keskar et al. 2019)."""
    no_repeat_ngram: int = called(
        0, transformers="no_repeat_ngram_size", ctranslate2="no_repeat_ngram_size", marian=MISSING
    )
    """Length of the n-grams of tokens that may not occur twice. 0: no limit. generate: prompt and text must fit the
    context."""
    forbidden: tuple[str, ...] = called(
        (), transformers="suppress_tokens", ctranslate2="suppress_sequences", marian=MISSING
    )
    """Tokens, as spelled in the vocabulary, that are never generated."""
    min_length: int = called(0, transformers="min_new_tokens", ctranslate2="min_decoding_length", marian=MISSING)
    """Minimum length of a result in tokens."""
    min_ratio: float = called(0.0, transformers=MISSING, ctranslate2=MISSING, marian=MISSING)
    """translate: minimum length of a result in tokens per source token."""
    max_length: int = called(0, transformers="max_length", ctranslate2="max_decoding_length", marian=MISSING)
    """Maximum length of a result in tokens. 0: the limit of the model (generate: 200)."""
    max_ratio: float = called(2.0, transformers=MISSING, ctranslate2=SAME, marian="max-length-factor")
    """translate: maximum length of a result in tokens per source token, before `max_extra` is added."""
    max_extra: int = called(10, transformers=MISSING, ctranslate2=SAME, marian=SAME)
    """translate: number of tokens that a result may have beyond `max_ratio`."""
    split: Literal["auto", "always", "never"] = called("auto", transformers=SAME, ctranslate2=SAME, marian=SAME)
    """translate: whether a line is translated sentence by sentence. auto: if the model was trained on single sentences,
    one result is wanted, and no prefix is given."""
    markup: Literal["tags", "markdown", "none"] = called("tags", transformers=SAME, ctranslate2=SAME, marian=SAME)
    """translate: what is taken out of a line and put back into its translation: tags such as `<b>` and `{0}...{/0}`
    (tags), or the emphasis and links of Markdown (markdown). Placeholders, addresses and code (see `data.protected`)
    are then kept unchanged too. none: a line is translated as it is; so is one with a prefix."""

    def __post_init__(self) -> None:
        positive(self, "batch_size", "beam_size", "n_best", "max_ratio", "temperature", "repetition_penalty")
        at_least(self, 0, "max_extra", "length_penalty", "coverage_penalty", "top_k", "no_repeat_ngram", "seed")
        at_least(self, 0, "min_length", "max_length", "min_ratio")
        at_most(
            self, batch_size=10**5, beam_size=10**4, n_best=10**4, max_length=10**7, seed=2**32 - 1, max_ratio=10**6
        )
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

    def for_call(self, **options: Any) -> "DecodeConfig":
        """Return the settings, with `options` replacing some of them.

        Raises:
            InputError: values contradict each other, or one of the options would have no effect.
        """
        settings = dataclasses.replace(self, **options)
        settings.refuse_idle(options)
        return settings

    def refuse_idle(self, names: Container[str], scored: bool = True, clients_sample: bool = True) -> None:
        """Raise `InputError` if `names` contains a setting that this search does not use.

        Args:
            names: of the settings.
            scored: whether scores are computed by greedy search, for which settings of their length count.
            clients_sample: whether others may ask for samples, for which the seed counts.
        """
        for name, reason in self.idle(scored).items():
            if name in names and not (name == "seed" and clients_sample):
                raise InputError(f"{name} {reason}")

    def idle(self, scored: bool = True) -> dict[str, str]:
        """Return the settings that this search does not use, and why; `scored` as for `refuse_idle`."""
        reasons: dict[str, str] = {}
        if self.beam_size == self.n_best == 1 and not scored:
            reasons |= dict.fromkeys(NORMALISING, "applies to scores only: set a beam_size above 1.")
        if not self.length_penalty:
            reasons["length_norm"] = "needs a length_penalty above 0."
        if not self.sample:
            reasons |= dict.fromkeys(DRAWING, "applies to sampling only: set sample too.")
        if self.beam_size == 1:
            reasons |= dict.fromkeys(SEARCHING, "applies to beam search only: set a beam_size above 1.")
        return reasons

    def in_use(self, scored: bool = True) -> dict[str, Any]:
        """Return the settings that this search uses; `scored`: whether greedy search computes scores."""
        idle = self.idle(scored)
        return {one.name: getattr(self, one.name) for one in dataclasses.fields(self) if one.name not in idle}

    def lacking(self, engine: str, scored: bool = True) -> dict[str, Any]:
        """Return the settings of this search that an engine has no counterpart for, with their values.

        Args:
            engine: `transformers`, `ctranslate2` or `marian`.
            scored: see `in_use`.
        """
        missing = {one.name: one.default for one in dataclasses.fields(self) if one.metadata[engine] == MISSING}
        used = self.in_use(scored)
        return {name: used[name] for name in missing if name in used and used[name] != missing[name]}

    def called_in(self, engine: str, scored: bool = True) -> dict[str, Any]:
        """Return the settings of this search by their names in an engine. Arguments as those of `lacking`."""
        named = {one.name: one.metadata[engine] for one in dataclasses.fields(self)}
        used = self.in_use(scored)
        return {named[name]: value for name, value in used.items() if named[name] not in (SAME, MISSING)}

    def length_limit(self, source_length: int, model_limit: int) -> int:
        """Return the maximum result length for `source_length` tokens and a model limited to `model_limit` tokens."""
        limit = min(max(1, int(source_length * self.max_ratio + self.max_extra)), model_limit)
        return min(limit, self.max_length) if self.max_length else limit
