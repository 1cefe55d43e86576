"""Translation line by line: tokenizes lines, decodes them with any search, and keeps their order."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from heedful.config import DecodeConfig
from heedful.config.languages import languages_of
from heedful.core.errors import InputError
from heedful.core.line_stream import line_batches
from heedful.core.validation import require_texts
from heedful.data.normalization import is_blank
from heedful.data.sentences import Pieces, SentenceSplitter, pieces_of_text, sentences_of
from heedful.data.tokenizer import Tokenizer
from heedful.decoding.candidates import Candidate
from heedful.inference.predictor import Predictor, ScoredText, Warn, warn_of_cut_texts, warn_of_other_forms
from heedful.runs.run import Run

PARAGRAPHS = 0.2  # share of training lines with several sentences from which a model is trained on paragraphs
SENTENCE_STRIDE = 1 << 40  # between the numbers of the sentences of a line, which sampling depends on
EMPTY: Sequence[Candidate] = [Candidate([], 0.0)]  # the candidates of an empty text
BATCHES_AHEAD = 50  # batches read ahead, so that sentences of similar length can be decoded together


class LineTranslator(Predictor):
    """Translates lines of text with a search: heedful's own (see `Translator`) or another engine's.

    Args:
        new_search: called with a `DecodeConfig` and whether greedy search computes scores; returns a search with the
            interface of `BatchSearch`.
        source_tokenizer, target_tokenizer: the tokenizers of the model.
        decode: default settings of all calls.
        max_length: maximum source length in tokens, end token included.
        splitter: splits lines into sentences; None: one for any language, which splits only if `decode.split` says so.
    """

    def __init__(
        self,
        new_search: Callable,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        decode: DecodeConfig,
        max_length: int,
        splitter: SentenceSplitter | None = None,
    ):
        self.source_tokenizer, self.target_tokenizer = source_tokenizer, target_tokenizer
        self.decode, self.max_length = decode, max_length
        self.splitter = splitter or SentenceSplitter("", token_counter(source_tokenizer), max_length - 1)
        self._new_search = new_search

    def translate(self, lines: str | Iterable[str], warn: Warn | None = None, **options: Any) -> Any:
        """Translate a text, or a list of lines.

        Args:
            lines: a text, to get a text back, or an iterable of lines, to get a list. The translation of an empty or
                blank line is empty. Lines are translated sentence by sentence, see `decode.split`.
            warn: called with a message for each line that is cut, since it is too long.
            options: settings of `DecodeConfig` for this call, such as `beam_size=4`.
        """
        if isinstance(lines, str):
            return next(self.stream([lines], warn, **options))
        return list(self.stream(lines, warn, **options))

    def stream(self, lines: Iterable[str], warn: Warn | None = None, **options: Any) -> Iterator[str]:
        """Yield a translation for each line, in order; some batches are read ahead."""
        for candidates in self.predict_stream(lines, warn, **options):
            yield candidates[0].text

    def n_best(self, lines: Iterable[str], warn: Warn | None = None, **options: Any) -> list[list[ScoredText]]:
        """Return for each line its `n_best` translations with scores, best first; only one for an empty line."""
        return self.predict(lines, warn, scored=True, **options)

    def predict_stream(
        self,
        texts: Iterable[str],
        warn: Warn | None = None,
        scored: bool = False,
        prefixes: Iterable[str] | None = None,
        first: int = 1,
        **options: Any,
    ) -> Iterator[list[ScoredText]]:
        """Yield for each line its `n_best` translations, best first.

        Args:
            texts: lines, see `translate`. If an iterator knows which lines have arrived (see `line_batches`), later
                lines are not awaited, unless tokens are sampled.
            warn, options: see `translate`.
            scored: whether greedy search computes scores too; otherwise they are 0.
            first: number of the first line, in warnings and for sampling: the place of a line in the whole of a text.
            prefixes: the beginning of each translation, which may end within a word. Trailing white space is ignored,
                unless it is a separate token, as in character vocabularies.

        Raises:
            InputError: there are fewer prefixes than lines, or one is too long; or lines cannot be split.
        """
        search = self.search_with(scored, **options)
        given = prefixes is not None
        pieces_of = self._splitting(search.decode, given, warn)
        lines, prefixes = iter(require_texts(texts)), itertools.repeat("") if prefixes is None else iter(prefixes)
        began = first
        sampled = search.decode.sample  # samples must not depend on when other lines arrive
        for window in line_batches(lines, BATCHES_AHEAD * search.decode.batch_size, whole=sampled):
            begun = list(itertools.islice(prefixes, len(window)))
            if len(begun) < len(window):
                raise InputError(f"There are fewer prefixes ({first - began + len(begun)}) than lines.")
            pieces = [pieces_of(line, f"line {number}") for number, line in enumerate(window, start=first)]
            yield from self._translate_window(search, pieces, begun, first, warn)
            first += len(window)
        if given and warn and next(prefixes, None) is not None:
            warn(f"there are more prefixes than lines ({first - began}).")

    def decode_ids(self, sources: list[list[int]], **options: Any) -> list[list[int]]:
        """Translate lists of source ids, without end tokens, to lists of target ids."""
        return [candidates[0].ids for candidates in self.search_with(**options)(sources)]

    def pieces(self, text: str) -> Pieces:
        """Return the pieces of a text that are translated one by one: its lines, and their sentences."""
        pieces = pieces_of_text(text, self._splitting(dataclasses.replace(self.decode, n_best=1)))
        lines = itertools.accumulate((gap == "\n" for gap in pieces.gaps), initial=1)
        long = [pair for pair in zip(pieces.texts, lines, strict=True) if len(pair[0].encode()) >= self.max_length]
        if long:  # without splitting, only their beginnings are read
            texts, numbers = zip(*long, strict=True)
            self.read(texts, numbers, pieces.notes.append)
        return pieces

    def _splitting(
        self, decode: DecodeConfig, prefixed: bool = False, warn: Warn | None = None
    ) -> Callable[[str, str], Pieces]:
        """Return a function from a line and its name to its pieces; `prefixed`: whether there are prefixes.

        Raises:
            InputError: `decode.split` wants sentences where each line is decoded as a whole.
        """
        reason = "each line has several results" if decode.n_best > 1 else "there are prefixes" if prefixed else ""
        if decode.split == "always" and reason:
            raise InputError(f"split = 'always' cannot be used, since {reason}.")
        if decode.split == "never" or (decode.split == "auto" and not self.splitter.by_default):
            return _whole
        if not reason:
            return self.splitter

        def not_split(line: str, name: str) -> Pieces:
            if warn and len(sentences_of(line, self.splitter.language)) > 1:
                warn(f"{name} has several sentences, which are translated as one, since {reason}.")
            return _whole(line, name)

        return not_split

    def _translate_window(
        self, search: Any, pieces: Sequence[Pieces], prefixes: Sequence[str], first: int, warn: Warn | None
    ) -> Iterator[list[ScoredText]]:
        """Yield the candidates of each line."""
        warn_of_cut_texts([note for each in pieces for note in each.notes], warn)
        numbers = [
            line + SENTENCE_STRIDE * sentence
            for line, each in enumerate(pieces, start=first)
            for sentence in range(len(each.texts))
        ]
        texts = [text for each in pieces for text in each.texts]
        sources = self.read(texts, [number % SENTENCE_STRIDE for number in numbers], warn)
        waiting = [index for index, ids in enumerate(sources) if ids]
        begun = None
        if any(prefixes):  # then every line is one piece
            begun = self._encode_prefixes([prefixes[index] for index in waiting])
        searched = search([sources[index] for index in waiting], [numbers[index] for index in waiting], begun)
        candidates_of = dict(zip(waiting, searched, strict=True))
        results = (candidates_of.get(index, EMPTY) for index in range(len(texts)))
        for each in pieces:
            yield self._joined(each, list(itertools.islice(results, len(each.texts))))

    def _joined(self, pieces: Pieces, results: Sequence[Sequence[Candidate]]) -> list[ScoredText]:
        """Return the candidates of a line of one piece, or the best ones of several pieces as one text.

        Its score is the mean of theirs, weighted by their lengths.
        """
        if len(results) == 1:
            return [ScoredText(self.target_tokenizer.decode(ids), score) for ids, score in results[0]]
        best = [candidates[0] for candidates in results]
        lengths = [len(ids) + 1 for ids, _ in best]  # with the end token
        score = sum(length * score for length, (_, score) in zip(lengths, best, strict=True)) / sum(lengths)
        return [ScoredText(pieces.join(self.target_tokenizer.decode(ids) for ids, _ in best), score)]

    def read(
        self, lines: Sequence[str], numbers: Sequence[int] | None = None, warn: Warn | None = None
    ) -> list[list[int]]:
        """Return the source ids of lines, without end tokens, truncated to what the model reads.

        Args:
            lines: the texts.
            numbers: numbers of the lines, in warnings; None: from 1 on.
            warn: called with a message for each line that is truncated; None: an `InputWarning` tells of the first.
        """
        max_tokens = self.max_length - 1  # without the end token
        # Blank lines count as empty, although some tokenizers have tokens for white space.
        lines = ["" if is_blank(line) else line for line in lines]
        sources = self.source_tokenizer.encode_batch(lines)
        warn_of_other_forms(self.source_tokenizer, lines, sources)
        cut = [index for index, ids in enumerate(sources) if len(ids) > max_tokens]
        numbers = numbers or range(1, len(lines) + 1)
        messages = [
            f"line {numbers[index]} has {len(sources[index])} tokens; only the first {max_tokens} are translated."
            for index in cut
        ]
        warn_of_cut_texts(messages, warn)
        for index in cut:
            sources[index] = sources[index][:max_tokens]
        return sources

    def search_with(self, scored: bool = False, **options: Any) -> Any:
        """Return the search for some settings; `scored`: whether greedy search computes scores too."""
        return self._new_search(self.decode.for_call(**options), scored)

    def _encode_prefixes(self, prefixes: Sequence[str]) -> list[list[int]]:
        """Return the ids of prefixes, without trailing white space if the next token includes it."""
        carried = self.target_tokenizer.carries_spaces
        encoded = self.target_tokenizer.encode_batch(text.rstrip() if carried else text for text in prefixes)
        return [ids or self.target_tokenizer.prefix_ids for ids in encoded]


def splitter_of(run: Run) -> SentenceSplitter:
    """Return what splits lines for the model of a run, by the text that it was trained on."""
    data, max_tokens = run.config.data, run.config.model.max_length - 1
    if data.train or data.corpus != "files":  # not imported
        max_tokens = min(max_tokens, data.max_tokens - 1)
    by_default = (data.several_sentences or 0.0) < PARAGRAPHS
    return SentenceSplitter(languages_of(run.config)[0], token_counter(run.source_tokenizer), max_tokens, by_default)


def token_counter(tokenizer: Tokenizer) -> Callable[[Sequence[str]], list[int]]:
    """Return a function from texts to their numbers of tokens."""
    return lambda texts: [len(ids) for ids in tokenizer.encode_batch(texts)]


def _whole(line: str, name: str = "") -> Pieces:
    """Return a line as its only piece."""
    return Pieces([line], [], [])
