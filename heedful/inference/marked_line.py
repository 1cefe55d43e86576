"""A line with markup: the sentences that a model reads, and its translation with the markup in place."""

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from heedful.config.protected import SLOTS, Protection
from heedful.data.markup.aligned_text import AlignedText
from heedful.data.markup.forms import tags_of
from heedful.data.markup.marked_text import MarkedText, Slot, html_escaped, markdown_escaped, markdown_paragraph
from heedful.data.markup.placing import Place, Sentence, SpanMatches, WrittenWord, place_spans
from heedful.data.markup.placing_tags import place_tags
from heedful.data.markup.shields import Shields
from heedful.data.markup.words import Word, words_of
from heedful.data.sentences import Pieces, gap_after


@dataclass
class MarkedLine:
    """A line whose markup is taken out and put back.

    Args:
        marked: the line.
        pieces: its sentences.
        protection: finds protected spans; its `numbered_kinds` are read as numbered tokens.
        soft_terms: whether terms follow the source, so that the model uses and inflects them; those that it does not
            use replace what it wrote instead, as all do otherwise.
    """

    marked: MarkedText
    pieces: Pieces
    protection: Protection
    soft_terms: bool = False

    def __post_init__(self) -> None:
        self.sentences: list[Sentence] = []
        position = 0
        for text in self.pieces.texts:
            start = self.marked.text.index(text, position) if text else position
            position = start + len(text)
            self.sentences.append(self._sentence(text, start))

    def _sentence(self, text: str, start: int) -> Sentence:
        """Return a sentence with its protected spans; those of the numbered kinds are replaced by tokens."""
        end, read, position, number = start + len(text), "", 0, 0
        places: list[Place] = []
        for slot in self.marked.slots:
            if slot.start < start or slot.end > end:
                continue
            read += text[position : slot.start - start]
            position = slot.end - start
            shown = self._shown(slot, number)
            number += shown in SLOTS
            source = shown if shown in SLOTS else self.marked.text[slot.start : slot.end]
            places.append(Place(len(read), len(read) + len(source), shown, slot.result, slot.kind))
            read += source
        return Sentence(read + text[position:], places, start, self.protection, self.soft_terms)

    def _shown(self, slot: Slot, number: int) -> str:
        """Return what the model should write for a span; `number`: of numbered ones before it in its sentence."""
        kinds = self.protection.numbered_kinds
        if number < len(SLOTS) and (slot.kind in kinds or (kinds and slot.kind in ("tag", "code", "slot"))):
            return SLOTS[number]
        return slot.result if slot.kind == "term" else self.marked.text[slot.start : slot.end]

    @property
    def texts(self) -> list[str]:
        """The sentences that a model reads."""
        return [sentence.read_as for sentence in self.sentences]

    def to_align(self, translations: Sequence[str]) -> list[tuple[AlignedText, AlignedText]]:
        """Return the pairs of sentences whose alignment `restored` needs: all, or none of the line."""
        translations = self._without_tags(translations)
        matches = [one.matches(text) for one, text in zip(self.sentences, translations, strict=True)]
        if not self.marked.tags and not any(one.missing for one in matches):
            return []
        return [
            (AlignedText(sentence.source, sentence.source_words), AlignedText(text, _words(text, one)))
            for sentence, text, one in zip(self.sentences, translations, matches, strict=True)
        ]

    def restored(self, translations: Sequence[str], alignments: Sequence[np.ndarray]) -> str:
        """Return the translation of the line.

        Args:
            translations: of the sentences.
            alignments: of the pairs of `to_align`.
        """
        translations = self._without_tags(translations)
        words = [word for sentence in self.sentences for word in self._source_words(sentence)]
        written: list[WrittenWord] = []
        first = 0
        for index, (sentence, text) in enumerate(zip(self.sentences, translations, strict=True)):
            matches = sentence.matches(text)
            alignment = alignments[index] if len(alignments) else None
            escape = self._escape(sentence)
            part = place_spans(sentence, text, matches, _words(text, matches), alignment, escape)
            for one in part:
                one.first = first
            if index and part:
                last = written[-1].text if written else ""
                part[0].gap = escape(gap_after(last, self.pieces.gaps[index - 1]))
            elif part:
                part[0].gap = ""
            written += part
            first += len(sentence.source_words)
        result = place_tags(written, self.marked.text, words, self.marked.tags)
        return markdown_paragraph(result, self.marked.text) if self.marked.form == "markdown" else result

    def _escape(self, sentence: Sentence) -> Callable[[str], str]:
        """Return what makes text in the form of the line of what a model writes for a sentence."""
        if self.marked.form == "markdown":
            return functools.partial(markdown_escaped, source=sentence.unprotected)
        return html_escaped if self.marked.escaped else str

    def _without_tags(self, translations: Sequence[str]) -> list[str]:
        """Return translations without the tags that a model has written; those of the source are put back."""
        if self.marked.escaped or not self.marked.tags:
            return list(translations)
        shown = {place.shown for sentence in self.sentences for place in sentence.places}
        kept = re.compile("|".join(map(re.escape, sorted(shown, key=len, reverse=True))) or r"(?!)")
        return [_without_tags(text, [match.span() for match in kept.finditer(text)]) for text in translations]

    def _source_words(self, sentence: Sentence) -> list[Word]:
        """Return the words of a sentence, at their places in the whole line."""
        shift, places, words = sentence.offset, {place.start: place for place in sentence.places}, []
        slots = iter([slot for slot in self.marked.slots if slot.start >= sentence.offset])
        for word in sentence.source_words:
            if word.start in places and (place := places[word.start]).end == word.end:
                slot = next(slots)
                words.append(Word(slot.start, slot.end))
                shift = slot.end - place.end
            else:
                words.append(Word(word.start + shift, word.end + shift))
        return words


def _without_tags(text: str, kept: Iterable[tuple[int, int]]) -> str:
    """Return a text without its tags, but those within the ranges `kept`, such as code."""
    shields = Shields(text, [(start, end, "") for start, end in kept])
    return "".join(shields.restored(token.raw) for token in tags_of(shields.text) if token.kind == "text")


def _words(text: str, matches: SpanMatches) -> list[Word]:
    return words_of(text, [(start, end) for start, end, _ in matches.ranges])


def whole_slots(pieces: Pieces, marked: MarkedText) -> Pieces:
    """Return pieces of a text that are joined where their border lies within a protected span."""
    texts: list[str] = []
    gaps: list[str] = []
    position = 0
    for text, gap in zip(pieces.texts, ["", *pieces.gaps], strict=True):
        start = marked.text.index(text, position) if text else position
        if texts and any(slot.start < start < slot.end or slot.start < position < slot.end for slot in marked.slots):
            texts[-1] += gap + text
        else:
            gaps += [gap] if texts else []
            texts.append(text)
        position = start + len(text)
    return Pieces(texts, gaps, pieces.notes)
