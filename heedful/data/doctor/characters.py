"""The characters of a line: its scripts, invisible characters, and wrongly decoded text.

Axes: N lines, K kinds of characters.
"""

import re
from collections.abc import Sequence

import numpy as np

# Where each kind of character begins, by Unicode block; it ends where the next begins. Every text may contain "".
_BEGINNINGS = [
    (0x0, "control"), (0x9, ""), (0xB, "control"), (0x20, ""), (0x41, "Latin"), (0x5B, ""), (0x61, "Latin"), (0x7B, ""),
    (0x7F, "control"), (0xA0, ""), (0xAD, "invisible"), (0xAE, ""), (0xC0, "Latin"), (0x2B0, ""), (0x370, "Greek"),
    (0x400, "Cyrillic"), (0x530, "Armenian"), (0x590, "Hebrew"), (0x600, "Arabic"), (0x700, "other"),
    (0x750, "Arabic"), (0x780, "other"), (0x8A0, "Arabic"), (0x900, "Devanagari"), (0x980, "Bengali"),
    (0xA00, "Gurmukhi"), (0xA80, "Gujarati"), (0xB00, "Odia"), (0xB80, "Tamil"), (0xC00, "Telugu"), (0xC80, "Kannada"),
    (0xD00, "Malayalam"), (0xD80, "Sinhala"), (0xE00, "Thai"), (0xE80, "Lao"), (0xF00, "Tibetan"), (0x1000, "Burmese"),
    (0x10A0, "Georgian"), (0x1100, "Hangul"), (0x1200, "Ethiopic"), (0x1380, "other"), (0x1780, "Khmer"),
    (0x1800, "other"), (0x1E00, "Latin"), (0x1F00, "Greek"), (0x2000, ""), (0x200B, "invisible"),
    (0x200C, ""),  # joiners: Persian, Indic scripts and family emoji need them
    (0x200E, "invisible"), (0x2010, ""), (0x2028, "invisible"), (0x202F, ""), (0x2060, "invisible"), (0x2070, ""),
    (0x2C00, "other"), (0x2C60, "Latin"), (0x2C80, "other"), (0x2E00, ""), (0x2E80, "Han"), (0x3000, ""),
    (0x3005, "Han"), (0x3008, ""), (0x3040, "Kana"), (0x3100, "Han"), (0x3130, "Hangul"), (0x3190, "Han"),
    (0x4DC0, ""), (0x4E00, "Han"), (0xA000, "other"), (0xA640, "Cyrillic"), (0xA6A0, "other"), (0xA720, "Latin"),
    (0xA800, "other"), (0xAC00, "Hangul"), (0xD800, "broken"), (0xE000, "invisible"), (0xF900, "Han"),
    (0xFB00, "Latin"), (0xFB13, "Armenian"), (0xFB1D, "Hebrew"), (0xFB50, "Arabic"), (0xFE00, ""), (0xFE70, "Arabic"),
    (0xFEFF, "invisible"), (0xFF00, ""), (0xFF21, "Latin"), (0xFF3B, ""), (0xFF41, "Latin"), (0xFF5B, ""),
    (0xFF65, "Kana"), (0xFFA0, "Hangul"), (0xFFE0, ""), (0xFFF0, "invisible"), (0xFFFC, "lost"), (0xFFFE, "invisible"),
    (0x10000, "other"), (0x1D400, ""), (0x1E900, "other"), (0x1F000, ""), (0x20000, "Han"), (0x32000, "other"),
    (0xE0000, "invisible"), (0xE0020, ""),  # tags, used in flags of regions
    (0xE0080, "invisible"), (0xE0100, ""),  # variation selectors of Chinese characters
    (0xE01F0, "invisible"),
]  # fmt: skip
CHARACTERS = ["", "control", "invisible", "broken", "lost"]
CHARACTERS += sorted({kind for _, kind in _BEGINNINGS} - set(CHARACTERS))
FIRST_SCRIPT = CHARACTERS.index("lost") + 1
_STARTS = np.array([start for start, _ in _BEGINNINGS], np.uint32)
_KIND_OF = np.array([CHARACTERS.index(kind) for _, kind in _BEGINNINGS])
# UTF-8 that was decoded as Windows-1252: a letter of the first range, then a character of the others.
_MANGLED = re.compile("[\u00c2-\u00f4][\u0080-\u00bf\u0152-\u0192\u02c6\u02dc\u2013-\u203a\u20ac\u2122]")
# ... but not a capital letter before a closing mark, nor a small letter that ends a word before two of them, such as
# the French no-break space and quotation mark: these happen to be valid UTF-8 of another letter.
_MARKS = "\u00bb\u2013\u2014\u2018-\u201d\u2026\u2122"
_CLOSED = re.compile(f"[\u00c0-\u00df][{_MARKS}]")
_TWICE_CLOSED = re.compile(f"[\u00e0-\u00ef][\u00a0\u00ae\u00b0{_MARKS}]{{2}}")
_MARKUP = re.compile(
    r"</?[A-Za-z][A-Za-z0-9:]*(?:\s[^<>]*)?/?>|&(?:amp|lt|gt|quot|apos|nbsp|#\d{1,7}|#x[0-9A-Fa-f]{1,6});"
)
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_UNSEEN = re.compile(
    "["
    + "".join(
        f"\\U{start:08x}-\\U{end - 1:08x}"
        for (start, kind), (end, _) in zip(_BEGINNINGS, [*_BEGINNINGS[1:], (0x110000, "")], strict=True)
        if kind in ("control", "invisible")
    )
    + "]"
)
_SEPARATORS = "".join(filter(_UNSEEN.match, "\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029"))


def code_points(lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the code points of all lines, each line followed by a line feed, and the line number of each."""
    text = "".join(f"{line}\n" for line in lines)
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    ends = codes == ord("\n")
    return codes, np.cumsum(ends) - ends


def count_kinds(lines: Sequence[str]) -> np.ndarray:
    """Return how many characters of each of `CHARACTERS` each line has: (N, K)."""
    codes, numbers = code_points(lines)
    kinds = _KIND_OF[np.searchsorted(_STARTS, codes, "right") - 1]
    width = len(CHARACTERS)
    return np.bincount(numbers * width + kinds, minlength=len(lines) * width).reshape(-1, width)


def without_unseen(line: str) -> str:
    """Return a line without control, invisible and private-use characters.

    Those that separate words, such as a line separator, are replaced by a space.
    """
    return _UNSEEN.sub(lambda match: " " if match[0].isspace() else "", line.strip(_SEPARATORS))


def has_markup(line: str) -> bool:
    """Return whether a line has tags or character references of HTML or XML.

    >>> has_markup("a <b>bold</b> word"), has_markup("rock &amp; roll"), has_markup("a < b > c"), has_markup("<3")
    (True, True, False, False)
    """
    return ("<" in line or "&" in line) and bool(_MARKUP.search(line))


def fix_mojibake(line: str) -> str:
    """Return a line in which UTF-8 that was read as Windows-1252 is restored; other lines are unchanged."""
    return _NOT_ASCII.sub(_read_again, line) if _MANGLED.search(line) else line


def _read_again(match):
    begun = match.start() > 0 and match.string[match.start() - 1].isalpha()
    if _CLOSED.fullmatch(match[0]) or (begun and _TWICE_CLOSED.fullmatch(match[0])):
        return match[0]
    try:
        return b"".join(_byte(character) for character in match[0]).decode()
    except UnicodeError:
        return match[0]


def _byte(character):
    """Return the byte that was decoded as this character; Latin-1 covers the bytes undefined in Windows-1252."""
    return character.encode("latin-1" if ord(character) < 0x100 else "cp1252")
