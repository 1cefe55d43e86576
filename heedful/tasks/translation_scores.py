"""How translations are scored: the words of BLEU, and the score that selects the best state."""

import itertools
from collections.abc import Sequence
from typing import Any

from heedful.config import Config
from heedful.data.corpus import Corpus
from heedful.tasks.task import Report


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
    translator: Any, pairs: Sequence[tuple[str, str]], warn: Report | None = None, **options: Any
) -> tuple[list[str], dict[str, Any]]:
    """Return (translations, text scores) of (source, reference) pairs; ignore case if the model writes only lower case.

    `warn` is called with a message for each source that exceeds the model's maximum length; `options` are those of
    `score_text`.
    """
    from heedful.training.evaluation import score_text

    translations = translator.translate([source for source, _ in pairs], warn)
    references = [translator.target_tokenizer.normalized(reference) for _, reference in pairs]
    return translations, score_text(translations, references, translator.target_tokenizer.lowercase, **options)
