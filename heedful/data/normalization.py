"""Unicode forms and spaces: texts that look the same become the same."""

import functools
import re
import unicodedata
from typing import Any

import tokenizers
from tokenizers import normalizers

FORMS: dict[str, Any] = {"nfc": "NFC", "nfkc": "NFKC"}
# Tab, space, and the characters of the category "space separator".
_SPACES = "[\\t \\u00a0\\u1680\\u2000-\\u200a\\u202f\\u205f\\u3000]+"
WHITE_SPACE = "\t\n\v\f\r \x85\u00a0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))

# Letters of scripts without spaces between words, as they stand within brackets of a regular expression: Thai, Lao,
# Burmese, Khmer, Japanese and Chinese.
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
INVISIBLE = ("Cc", "Cf", "Zs", "Zl", "Zp")  # Unicode categories


@functools.cache
def word_character() -> re.Pattern[str]:
    """Return the pattern of a character that continues a word: a letter, digit, `_` or combining mark.

    Vowel signs of Indian scripts and accents of decomposed text are marks, which `\\w` leaves out. In scripts without
    spaces no character continues a word, since a word may end anywhere.
    """
    marks = (chr(code) for code in range(0x300, 0x3100) if unicodedata.category(chr(code)) in ("Mn", "Mc"))
    return re.compile(f"(?![{UNSPACED}])[\\w{''.join(marks)}]")


def normalized(text: str, kind: str) -> str:
    r"""Return a text in a Unicode form, with one space for each run of tabs and spaces, and none at its ends.

    >>> normalized("Se\u0301  v\u00a0x ", "nfc") == "S\u00e9 v x"
    True

    Args:
        kind: `nfc` (composed letters), `nfkc` (compatibility characters too, such as full-width letters) or `none`,
            which returns the text as it is.
    """
    if kind == "none":
        return text
    return re.sub(_SPACES, " ", unicodedata.normalize(FORMS[kind], text)).strip(WHITE_SPACE)


def normalizer(kind: str) -> list[Any]:
    """Return the normalizers of the library `tokenizers` that do what `normalized` does."""
    if kind == "none":
        return []
    form = {"nfc": normalizers.NFC, "nfkc": normalizers.NFKC}[kind]()
    return [form, normalizers.Replace(tokenizers.Regex(_SPACES), " "), normalizers.Strip()]


def prepend_normalizer(inner: tokenizers.Tokenizer, kind: str) -> None:
    """Let a tokenizer normalise each text before anything else."""
    if steps := normalizer(kind):
        inner.normalizer = normalizers.Sequence([*steps, *([inner.normalizer] if inner.normalizer else [])])


def without_strip(data: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a tokenizer.json without the step of `normalizer` that removes spaces at the ends.

    Text is cut at added tokens before it is normalised, and the spaces beside them must stay.
    """
    steps = (data["normalizer"] or {}).get("normalizers", [])
    for number, step in enumerate(steps[1:], start=1):
        if step["type"] == "Strip" and steps[number - 1].get("pattern") == {"Regex": _SPACES}:
            kept = [*steps[:number], *steps[number + 1 :]]
            return data | {"normalizer": data["normalizer"] | {"normalizers": kept}}
    return data


def normalization_of(inner: tokenizers.Tokenizer) -> str:
    """Return the kind of normalisation of a tokenizer; `none` if it does not fold both letters and spaces."""
    if inner.normalizer is None:
        return "none"

    def folds(one, other):
        return inner.normalizer.normalize_str(f"x{one}x") == inner.normalizer.normalize_str(f"x{other}x")

    if not folds("e\u0301", "\u00e9") or not folds("\u00a0 ", " "):
        return "none"
    return "nfkc" if folds("\uff0c", ",") else "nfc"


def is_blank(text: str) -> bool:
    r"""Return whether a text has nothing to see: only white space, and control and format characters.

    >>> is_blank(" \u200b\ufeff"), is_blank("a")
    (True, False)
    """
    return all(unicodedata.category(character) in INVISIBLE for character in text)
