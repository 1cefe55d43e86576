"""Glossaries: terms of the source language, and what they are in the target language."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from unicodedata import normalize

from heedful.core.errors import InputError
from heedful.data.markup.marked_text import MarkedText, Slot
from heedful.data.normalization import UNSPACED, word_character
from heedful.data.text_files import read_lines

# Where a term may begin and end: at the border of a word, or anywhere if its letter there is of an unspaced script.
_BEGINS = f"(?:(?=[{UNSPACED}])|(?<!{word_character().pattern}))"
_ENDS = f"(?:(?<=[{UNSPACED}])|(?!{word_character().pattern}))"


class Glossary:
    """Terms and their translations.

    A term is found as a whole word, as written or with a capital first letter; in scripts without spaces between words,
    anywhere. Of overlapping terms it is the longest.

    Args:
        terms: translations by term.
        name: for messages.

    Raises:
        InputError: there is no term, or a side of one is blank.
    """

    def __init__(self, terms: Mapping[str, str], name: str = "the glossary"):
        if not terms:
            raise InputError(f"{name} has no terms.")
        self.terms = {" ".join(term.split()): " ".join(result.split()) for term, result in terms.items()}
        for term, result in self.terms.items():
            if not term or not result:
                raise InputError(f"{name}: {term or result!r} has an empty side.")
        longest_first = sorted(self.terms, key=len, reverse=True)
        written = dict.fromkeys(normalize(form, term) for term in longest_first for form in ("NFC", "NFD"))
        forms = "|".join(re.escape(term).replace("\\ ", r"\s+") for term in written)
        self._pattern = re.compile(f"{_BEGINS}(?:{forms}){_ENDS}", re.IGNORECASE)
        self._folded = {_folded(term): term for term in self.terms}
        self._terms = {normalize("NFC", term): term for term in self.terms}

    @classmethod
    def read(cls, path: str | Path) -> "Glossary":
        """Read a file with a term, a tab and its translation on each line.

        Raises:
            InputError: a line has another form, or a term comes twice.
        """
        return cls.of_lines(read_lines(path), str(path))

    @classmethod
    def of_lines(cls, lines: Iterable[str], name: str) -> "Glossary":
        """Return the glossary in lines of a file; see `read`."""
        terms: dict[str, str] = {}
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            columns = [" ".join(column.split()) for column in line.rstrip("\r\n").split("\t")]
            if len(columns) != 2 or not all(columns):
                raise InputError(f"{name}, line {number}: expected a term, a tab and its translation.")
            if columns[0] in terms:
                raise InputError(f"{name}, line {number}: {columns[0]!r} comes twice.")
            terms[columns[0]] = columns[1]
        return cls(terms, name)

    def occurrences(self, text: str) -> list[tuple[int, int, str]]:
        """Return where terms stand in a text, and their translations: (start, end, translation), in order."""
        matches = []
        for match in self._pattern.finditer(text):
            written = normalize("NFC", " ".join(match.group().split()))
            term = self._terms.get(written) or self._folded.get(_folded(written), "")
            composed = normalize("NFC", term)
            # Another case is another word ("Polish", "polish"), but at the beginning of a sentence.
            if term and written in (composed, composed[0].upper() + composed[1:]):
                matches.append((*match.span(), self.terms[term]))
        return matches

    def marked(self, text: MarkedText) -> MarkedText:
        """Return a text with slots for its terms, where nothing else is protected."""
        slots = [
            Slot(start, end, result, "term") for start, end, result in self.occurrences(text.text)
            if all(end <= slot.start or start >= slot.end for slot in text.slots)
        ]  # fmt: skip
        return text._replace(slots=sorted([*text.slots, *slots], key=lambda slot: slot.start)) if slots else text

    def kept(self, source: str, translation: str) -> tuple[int, int]:
        """Return how many terms a source has, and how many of their translations a translation has.

        A translation counts in any case, and with an ending.
        """
        results = [result for _, _, result in self.occurrences(source)]
        left, kept = translation.casefold(), 0
        for result in results:
            if match := re.search(f"{_BEGINS}{re.escape(result.casefold())}", left):
                left = left[: match.start()] + "\n" + left[match.end() :]
                kept += 1
        return len(results), kept


def _folded(term: str) -> str:
    return normalize("NFC", term).casefold()
