"""Text in pieces that a translator reads one at a time: lines, their sentences, and clauses of what is too long."""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from heedful.core.errors import InputError, counted, library_errors_reported
from heedful.data.normalization import UNSPACED

# Where a sentence that is too long may be cut: after punctuation, then between words. A run of white space is looked at
# once, from its start: it may be most of a text.
CUTS = (r"(?<=[,;:，、；：])\s*|(?<!\s)\s+(?=[–—(])|(?<=[)–—])\s+", r"(?<=\s)(?=\S)")
# Scripts without spaces between sentences, and their punctuation.
_WIDE_SPACE = re.compile(r"[^\S\x00-\x7f]")  # spaces that are not ASCII
_UNSPACED = re.compile(f"[{UNSPACED}\u3000-\u303f\uff00-\uff60]")


class Pieces(NamedTuple):
    """The pieces of a text.

    Args:
        texts: the pieces.
        gaps: what stands between two of them: one fewer than the pieces.
        notes: messages for the user about sentences that were cut.
        joined: returns the results of all pieces as one text, where markup goes back into them; None: the gaps do.
    """

    texts: list[str]
    gaps: list[str]
    notes: list[str]
    joined: Callable[[list[str]], str] | None = None

    def join(self, results: Iterable[str]) -> str:
        """Return the results of all pieces as one text."""
        if self.joined:
            return self.joined(list(results))
        first, *others = results
        for gap, result in zip(self.gaps, others, strict=True):
            first += gap_after(first, gap) + result
        return first


def gap_after(text: str, gap: str) -> str:
    """Return what follows a result, where the source has `gap`: a space if only the source's script has none."""
    return gap or ("" if not text or _UNSPACED.match(text[-1]) else " ")


class CutText(str):
    """A message about a text that is too long: only a part of it is read, or it is read in parts."""


@dataclass(frozen=True)
class SentenceSplitter:
    """Splits lines into sentences, and sentences that are too long into clauses.

    Args:
        language: code of the language, such as "pt"; rules that most languages share apply to other texts.
        count_tokens: returns the number of tokens of each text.
        max_tokens: of the longest sentence that a model should read.
        by_default: whether `decode.split = "auto"` splits: whether the model was trained on single sentences.
    """

    language: str
    count_tokens: Callable[[Sequence[str]], list[int]]
    max_tokens: int
    by_default: bool = False

    def __call__(self, line: str, name: str = "the text") -> Pieces:
        """Return the pieces of a line; a line with one sentence is its only piece, unchanged.

        Args:
            line: the text.
            name: of the line, in notes.
        """
        sentences = sentences_of(line, self.language)
        if len(sentences) < 2:
            sentences = [line]
        texts: list[str] = []
        gaps: list[str] = []
        cut: list[int] = []  # numbers of parts
        for sentence in sentences:
            clauses = self._clauses(sentence)
            if len(clauses) > 1:
                cut.append(len(clauses))
            for clause in clauses:
                text = clause.strip() if len(sentences) + len(clauses) > 2 else clause
                texts.append(text)
                gaps.append(clause[len(clause.rstrip()) :])
        return Pieces(texts, gaps[:-1], [self._note(name, cut)] if cut else [])

    def _note(self, name, cut):
        limit = counted(self.max_tokens, "token")
        if len(cut) == 1:
            return CutText(
                f"{name} has a sentence that is longer than any in training ({limit}): it is translated in "
                f"{cut[0]} parts."
            )
        return CutText(
            f"{name} has {len(cut)} sentences that are longer than any in training ({limit}): they are translated in "
            f"{sum(cut)} parts."
        )

    def _clauses(self, sentence: str, cuts: Sequence[str] = CUTS) -> list[str]:
        """Return a sentence, cut where it is too long; the parts keep the white space after them."""
        if len(sentence.encode("utf-8", "replace")) <= self.max_tokens or self._fits(sentence):
            return [sentence]
        if not cuts:  # a single word, or a script without spaces
            middle = len(sentence) // 2
            if not middle:
                return [sentence]
            return [*self._clauses(sentence[:middle], ()), *self._clauses(sentence[middle:], ())]
        ends = [match.end() for match in re.finditer(cuts[0], sentence)]
        parts = [sentence[start:end] for start, end in zip([0, *ends], [*ends, len(sentence)], strict=True)]
        joined: list[str] = []
        for part, size in zip(parts, self.count_tokens(parts), strict=True):
            if size > self.max_tokens:
                joined += self._clauses(part, cuts[1:])
            elif joined and self._fits(joined[-1] + part):
                joined[-1] += part
            elif part:
                joined.append(part)
        return joined

    def _fits(self, text):
        return self.count_tokens([text])[0] <= self.max_tokens


def sentences_of(line: str, language: str) -> list[str]:
    """Return the sentences of a line; each keeps the white space after it.

    >>> sentences_of("Dr. Silva chegou. O gato dorme.", "pt")
    ['Dr. Silva chegou. ', 'O gato dorme.']
    """
    sentences: list[str] = []
    for part in _segments(line, language or "en"):
        if sentences and not (part.strip() and sentences[-1].strip()):
            sentences[-1] += part  # white space alone
        else:
            sentences.append(part)
    return sentences


def _segments(line: str, language: str) -> Iterator[str]:
    """Yield what sentencex takes for the sentences of a line; the whole line if it fails."""
    import sentencex

    try:
        with library_errors_reported("The text cannot be split into sentences"):
            # It fails at full stops after wide spaces, such as one that does not break.
            parts = list(sentencex.segment(language, _WIDE_SPACE.sub(" ", line)))
    except UnicodeEncodeError as error:
        raise InputError("A text is not UTF-8.") from error
    except InputError:
        parts = [line]
    start = 0
    for part in parts:
        yield line[start : start + len(part)]
        start += len(part)


def pieces_of_text(text: str, split: Callable[[str, str], Pieces]) -> Pieces:
    """Return the pieces of all lines of a text, by a function of a line and its name; ends of lines are gaps."""
    lines = [split(line, f"line {number}") for number, line in enumerate(text.split("\n"), start=1)]
    pieces = joined_pieces(lines, "\n", "\n".join)
    return pieces if any(line.joined for line in lines) else pieces._replace(joined=None)


def joined_pieces(parts: Sequence[Pieces], gap: str, join: Callable[[list[str]], str]) -> Pieces:
    """Return the pieces of several parts as those of one text.

    Args:
        parts: their pieces.
        gap: what stands between two parts.
        join: joins the results of the parts.
    """
    gaps: list[str] = []
    for index, part in enumerate(parts):
        gaps += [gap] * bool(index) + part.gaps

    def joined(results: list[str]) -> str:
        written = iter(results)
        return join([part.join(itertools.islice(written, len(part.texts))) for part in parts])

    return Pieces(
        [text for part in parts for text in part.texts], gaps, [n for part in parts for n in part.notes], joined
    )
