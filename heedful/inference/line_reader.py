"""How a line becomes the texts that a model translates: without its markup, sentence by sentence."""

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from heedful.config import DecodeConfig
from heedful.config.languages import languages_of
from heedful.config.protected import Protection, protection_of
from heedful.core.errors import InputError
from heedful.data.glossary import Glossary
from heedful.data.markup.html_tokens import INLINE, VOID
from heedful.data.markup.marked_text import MarkedText, marked
from heedful.data.markup.messages import message_pieces
from heedful.data.sentences import Pieces, SentenceSplitter, sentences_of
from heedful.data.tokenizer import Tokenizer
from heedful.inference.marked_line import MarkedLine, whole_slots
from heedful.inference.predictor import Warn
from heedful.runs.run import Run

PARAGRAPHS = 0.2  # share of training lines with several sentences from which a model is trained on paragraphs


class Line(NamedTuple):
    """A line to translate.

    Args:
        pieces: the texts that a model reads.
        marked: puts the line's markup back; None if it has none.
    """

    pieces: Pieces
    marked: MarkedLine | None = None


class LineReader:
    """Reads lines for a model.

    Args:
        splitter: splits lines into sentences.
        protection: finds protected spans.
        soft_terms: whether the model was trained to use terms that follow a source.
        tags: new tokens of the vocabulary. Those that look like tags of languages, such as `<2en>`, count for all
            sentences of a line that begins with them.
    """

    def __init__(
        self, splitter: SentenceSplitter, protection: Protection, soft_terms: bool = False, tags: Sequence[str] = ()
    ):
        self.splitter, self.protection, self.soft_terms = splitter, protection, soft_terms
        longest_first = sorted(filter(_is_tag, tags), key=len, reverse=True)
        self._tags = re.compile(rf"\s*(?:(?:{'|'.join(map(re.escape, longest_first))})\s*)+") if longest_first else None

    @classmethod
    def of_lines(cls, tokenizer: Tokenizer, max_length: int, protected: Sequence[str] = ()) -> "LineReader":
        """Return a reader for any language, which splits lines only if `decode.split` says so."""
        splitter = SentenceSplitter("", token_counter(tokenizer), max_length - 1)
        return cls(splitter, protection_of(tuple(protected)))

    @classmethod
    def of_run(cls, run: Run, max_length: int | None = None) -> "LineReader":
        """Return the reader for the model of a run, by the text that it was trained on.

        Args:
            run: the run.
            max_length: maximum source length in tokens, end token included; None: that of the model.
        """
        data, max_tokens = run.config.data, (max_length or run.config.model.max_length) - 1
        if data.train or data.corpus != "files":  # not imported
            max_tokens = min(max_tokens, data.max_tokens - 1)
        by_default = (data.several_sentences or 0.0) < PARAGRAPHS
        counter = token_counter(run.source_tokenizer)
        splitter = SentenceSplitter(languages_of(run.config)[0], counter, max_tokens, by_default)
        return cls(splitter, protection_of_run(run), bool(data.terms), run.config.tokenizer.new_tokens)

    def reading(
        self,
        decode: DecodeConfig,
        prefixed: bool = False,
        warn: Warn | None = None,
        glossary: Glossary | None = None,
    ) -> Callable[[str, str], Line]:
        """Return a function from a line and its name to its `Line`.

        Args:
            decode: settings.
            prefixed: whether translations continue prefixes; such a line is read as it is.
            warn: called with a message for a line that is not split, although it has several sentences.
            glossary: of terms that the translations should have.

        Raises:
            InputError: `decode.split` wants sentences where each line is decoded as a whole; or there is a glossary
                with prefixes, or without markup.
        """
        if glossary and (decode.markup == "none" or prefixed):
            reason = "there are prefixes" if prefixed else "markup = 'none' leaves lines as they are"
            raise InputError(f"A glossary cannot be used, since {reason}.")

        def reading_with(splitter: SentenceSplitter) -> Callable[[str, str], Line]:
            split = self._splitting(splitter, decode, prefixed, warn)
            if decode.markup == "none" or prefixed:
                return lambda line, name: Line(split(line, name))
            return self._reading_marked(split, decode, glossary)

        return self._reading_tagged(reading_with)

    def _reading_marked(
        self, split: Callable[[str, str], Pieces], decode: DecodeConfig, glossary: Glossary | None
    ) -> Callable[[str, str], Line]:
        """Return a function from a line, which may have markup, and its name to its `Line`."""

        def read(line: str, name: str) -> Line:
            text = marked(line, decode.markup, self.protection)
            text = glossary.marked(text) if glossary else text
            if text.plain and text.form != "markdown":
                return Line(split(line, name))
            if text.wordless and not any(slot.kind == "term" for slot in text.slots):
                return Line(unchanged(line))
            read = self._line(split, text, name)
            return Line(
                read.pieces._replace(notes=[f"{name}: {note}" for note in text.notes] + read.pieces.notes), read.marked
            )

        return read

    def _reading_tagged(
        self, reading_with: Callable[[SentenceSplitter], Callable[[str, str], Line]]
    ) -> Callable[[str, str], Line]:
        """Return a function that reads lines, with the tags of a line before each of its sentences.

        `reading_with` returns one that reads lines without tags, given what splits them.
        """
        read = reading_with(self.splitter)
        if not (tags := self._tags):
            return read

        @functools.cache
        def reading_after(tag: str) -> Callable[[str, str], Line]:
            [size] = self.splitter.count_tokens([tag])
            return reading_with(dataclasses.replace(self.splitter, max_tokens=max(1, self.splitter.max_tokens - size)))

        def read_tagged(line: str, name: str) -> Line:
            match = tags.match(line)
            if not match or match.end() == len(line):
                return read(line, name)
            pieces, marked = reading_after(match.group())(line[match.end() :], name)
            texts = [match.group() + text if text.strip() else text for text in pieces.texts]
            return Line(pieces._replace(texts=texts), marked)

        return read_tagged

    def read_marked(self, text: MarkedText, decode: DecodeConfig, name: str, glossary: Glossary | None = None) -> Line:
        """Return the `Line` of a text whose markup is known."""
        text = glossary.marked(text) if glossary else text
        return self._line(self._splitting(self.splitter, decode, False, None), text, name)

    def _line(self, split: Callable[[str, str], Pieces], text: MarkedText, name: str) -> Line:
        pieces = whole_slots(split(text.text, name), text)
        line = MarkedLine(text, pieces, self.protection, self.soft_terms)
        return Line(pieces._replace(texts=line.texts), line)

    def splits(self, decode: DecodeConfig) -> bool:
        """Return whether lines are read sentence by sentence, unless a line has several results."""
        return decode.split == "always" or (decode.split == "auto" and self.splitter.by_default)

    def _splitting(
        self, splitter: SentenceSplitter, decode: DecodeConfig, prefixed: bool, warn: Warn | None
    ) -> Callable[[str, str], Pieces]:
        """Return a function from a line and its name to its pieces."""
        reason = "each line has several results" if decode.n_best > 1 else "there are prefixes" if prefixed else ""
        if decode.split == "always" and reason:
            raise InputError(f"split = 'always' cannot be used, since {reason}.")
        if not self.splits(decode):
            return _whole
        if not reason:
            return splitter

        def not_split(line: str, name: str) -> Pieces:
            if warn and len(sentences_of(line, splitter.language)) > 1:
                warn(f"{name} has several sentences, which are translated as one, since {reason}.")
            return _whole(line, name)

        return not_split


def protection_of_run(run: Run) -> Protection:
    """Return what finds the protected spans in text for the model of a run."""
    return protection_of(run.config.data.protected)


def _is_tag(token: str) -> bool:
    """Return whether a token of the vocabulary looks like the tag of a language, and not like one of HTML."""
    match = re.fullmatch(r"<(\w[\w-]*)>|\[\w[\w-]*\]|__\w+__|>>[\w-]+<<", token)
    return match is not None and (match[1] or "").lower() not in VOID | INLINE


def message_of(line: str, decode: DecodeConfig) -> Pieces | None:
    """Return the sentences of a message with plural forms or choices; None for other lines, or without markup."""
    return None if decode.markup == "none" else message_pieces(line)


def token_counter(tokenizer: Tokenizer) -> Callable[[Sequence[str]], list[int]]:
    """Return a function from texts to their numbers of tokens."""
    return lambda texts: [len(ids) for ids in tokenizer.encode_batch(texts)]


def unchanged(line: str) -> Pieces:
    """Return the pieces of a line in which nothing is to be translated."""
    return Pieces([""], [], [], lambda _: line)


def _whole(line: str, name: str = "") -> Pieces:
    """Return a line as its only piece."""
    return Pieces([line], [], [])
