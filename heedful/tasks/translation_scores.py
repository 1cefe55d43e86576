"""How translations are scored: the words of BLEU, and the score that selects the best state."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from heedful.config import Config
from heedful.core.progress import Report
from heedful.data.corpus import Corpus


def bleu_tokenizer_of(config: Config, references: Sequence[str]) -> str:
    """Return the tokenizer for the BLEU of a run."""
    from heedful.runs.scores.bleu_tokenizer import bleu_tokenizer

    return bleu_tokenizer(references, config.data.bleu_tokenizer, config.data.target_language)


def fitting_selection(config: Config, valid: Corpus) -> str:
    """Return the score that selects the best state: "chrf" where BLEU says little about the validation text."""
    from heedful.runs.scores.bleu_tokenizer import are_short, is_without_spaces

    references = [target for _, target in itertools.islice(valid, config.train.validate_sentences)]
    tokenizer = bleu_tokenizer_of(config, references)
    return "chrf" if is_without_spaces(tokenizer) or are_short(references, tokenizer) else "bleu"


def translate_and_score(
    translator: Any,
    pairs: Sequence[tuple[str, str]],
    warn: Report | None = None,
    decode: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[list[str], dict[str, Any], dict[str, Any]]:
    """Translate pairs; return translations, text scores and their counts. Case is ignored if the model has none.

    Args:
        translator: of the sources.
        pairs: sources and references.
        warn: called with a message for each source that exceeds the model's maximum length.
        decode: settings of `DecodeConfig` that differ from the translator's own.
        options: of `score_text`.
    """
    from heedful.training.evaluation import score_text, text_counts

    translations = translator.translate([source for source, _ in pairs], warn, **decode or {})
    references = [translator.target_tokenizer.normalized(reference) for _, reference in pairs]
    texts = translations, references, translator.target_tokenizer.lowercase
    counts = text_counts(*texts, **options)
    return translations, score_text(*texts, counts=counts, **options), counts
