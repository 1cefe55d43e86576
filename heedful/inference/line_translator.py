"""Translation line by line: tokenizes lines, decodes them with any search, and keeps their order."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from heedful.config import DecodeConfig
from heedful.core.errors import InputError
from heedful.core.line_stream import line_batches
from heedful.core.validation import require_texts
from heedful.data.document_formats.document import Document
from heedful.data.glossary import Glossary
from heedful.data.normalization import is_blank
from heedful.data.sentences import CutText, Pieces, joined_pieces, pieces_of_text
from heedful.data.tokenizer import Tokenizer
from heedful.decoding.candidates import SENTENCE_STRIDE, Candidate
from heedful.inference.line_reader import Line, LineReader, message_of
from heedful.inference.predictor import Predictor, ScoredText, Warn, warn_of_cut_texts, warn_of_other_forms

if TYPE_CHECKING:
    from heedful.inference.aligner import Aligner

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
        new_aligner: called when words must be aligned for the first time; returns the aligner.
        reader: of lines; None: one for any language, which splits them only if `decode.split` says so.

    Attributes:
        glossary: of terms that all translations should have, unless a call names another.
    """

    def __init__(
        self,
        new_search: Callable,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        decode: DecodeConfig,
        max_length: int,
        new_aligner: "Callable[[], Aligner]",
        reader: LineReader | None = None,
    ):
        self.source_tokenizer, self.target_tokenizer = source_tokenizer, target_tokenizer
        self.decode, self.max_length = decode, max_length
        self.reader = reader or LineReader.of_lines(source_tokenizer, max_length)
        self._new_search, self._new_aligner = new_search, new_aligner
        self.glossary: Glossary | None = None

    @functools.cached_property
    def aligner(self) -> "Aligner":
        """Aligns the words of translations with those of their sources."""
        return self._new_aligner()

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
        glossary: Glossary | None = None,
        **options: Any,
    ) -> Iterator[list[ScoredText]]:
        """Yield for each line its `n_best` translations, best first.

        Args:
            texts: lines, see `translate`; or texts of several lines, which stay apart unless there are prefixes or
                several results. If an iterator knows which have arrived (see `line_batches`), later ones are not
                awaited, unless tokens are sampled.
            warn, options: see `translate`.
            scored: whether greedy search computes scores too; otherwise they are 0.
            first: number of the first line, in warnings and for sampling: the place of a line in the whole of a text.
            prefixes: the beginning of each translation, which may end within a word. Trailing white space is ignored,
                unless it is a separate token, as in character vocabularies.
            glossary: of terms that the translations should have, see `Glossary`.

        Raises:
            InputError: there are fewer prefixes than lines, or one is too long; or lines cannot be split.
        """
        search = self.search_with(scored, **options)
        has_prefixes = prefixes is not None
        line_of = self.reader.reading(search.decode, has_prefixes, warn, glossary or self.glossary)
        lines, prefixes = iter(require_texts(texts)), itertools.repeat("") if prefixes is None else iter(prefixes)
        first_line = first
        unsplit = has_prefixes or search.decode.n_best > 1
        sampled = search.decode.sample  # samples must not depend on when other lines arrive
        for window in line_batches(lines, BATCHES_AHEAD * search.decode.batch_size, whole=sampled):
            window_prefixes = list(itertools.islice(prefixes, len(window)))
            if len(window_prefixes) < len(window):
                raise InputError(f"There are fewer prefixes ({first - first_line + len(window_prefixes)}) than lines.")
            read = [
                self._read(line, f"line {number}", line_of, search.decode, unsplit)
                for number, line in enumerate(window, start=first)
            ]
            yield from self._translate_window(search, read, window_prefixes, itertools.count(first), warn)
            first += len(window)
        if has_prefixes and warn and next(prefixes, None) is not None:
            warn(f"there are more prefixes than lines ({first - first_line}).")

    def _read(
        self, text: str, name: str, line_of: Callable[[str, str], Line], decode: DecodeConfig, unsplit: bool
    ) -> Line:
        """Return a text to translate; its lines are translated one by one, unless it is to stay `unsplit`."""
        if unsplit or not ("\n" in text.strip() or message_of(text, decode)):
            return line_of(text.rstrip("\r\n"), name)  # of a file, it has its end
        return Line(self._pieces_of_text(text, lambda _: name, line_of, decode))

    def _pieces_of_text(
        self, text: str, named: Callable[[str], str], line_of: Callable[[str, str], Line], decode: DecodeConfig
    ) -> Pieces:
        """Return the pieces of a text: of a message, which may have several lines, or of each line."""
        within_lines = all(line.count("{") == line.count("}") for line in text.split("\n"))
        if not within_lines and message_of(text, decode):
            return self._pieces_of_line(text, named("line 1"), line_of, decode)
        return pieces_of_text(text, lambda line, name: self._pieces_of_line(line, named(name), line_of, decode))

    def _pieces_of_line(
        self, line: str, name: str, line_of: Callable[[str, str], Line], decode: DecodeConfig
    ) -> Pieces:
        """Return the pieces of a line; those of all its sentences if it is a message with plural forms or choices."""
        if not (message := message_of(line, decode)):
            return self.joinable(line_of(line, name))
        return joined_pieces([self.joinable(line_of(text, name)) for text in message.texts], "", message.join)

    def translate_texts(
        self,
        document: Document,
        name: str = "text",
        warn: Warn | None = None,
        glossary: Glossary | None = None,
        **options: Any,
    ) -> Iterator[str]:
        """Yield the translation of each text of a document, from which `document.written` makes its content.

        Args:
            document: see `read_document`.
            name: of the texts, in warnings.
            warn, options: see `translate`.
            glossary: see `predict_stream`.
        """
        warn_of_cut_texts(document.notes, warn)
        glossary = glossary or self.glossary
        search = self.search_with(**{"n_best": 1} | options)
        size = BATCHES_AHEAD * search.decode.batch_size
        for first in range(0, len(document.texts), size):
            lines = [
                self.reader.read_marked(text, search.decode, f"{name} {number}", glossary)
                for number, text in enumerate(document.texts[first : first + size], start=first + 1)
            ]
            for candidates in self._translate_window(
                search, lines, [""] * len(lines), itertools.count(first + 1), warn
            ):
                yield candidates[0].text

    def pieces_of_document(self, document: Document, glossary: Glossary | None = None, **options: Any) -> Pieces:
        """Return the pieces of all texts of a document; joined, they are its content as text."""
        lines = self.pieces_of_texts(document, glossary, **options)

        def joined(results: list[str]) -> str:
            written = iter(results)
            translations = [line.join(itertools.islice(written, len(line.texts))) for line in lines]
            return document.written(translations).decode()

        texts = [text for line in lines for text in line.texts]
        notes = [*document.notes, *(note for line in lines for note in line.notes)]
        return Pieces(texts, [""] * max(0, len(texts) - 1), notes, joined)

    def pieces_of_texts(self, document: Document, glossary: Glossary | None = None, **options: Any) -> list[Pieces]:
        """Return the pieces of each text of a document; joined, they are its translation. `options`: see `pieces`."""
        decode, glossary = dataclasses.replace(self.decode, n_best=1, **options), glossary or self.glossary
        return [
            self.joinable(self.reader.read_marked(text, decode, f"text {number}", glossary))
            for number, text in enumerate(document.texts, start=1)
        ]

    def decode_ids(self, sources: list[list[int]], **options: Any) -> list[list[int]]:
        """Translate lists of source ids, without end tokens, to lists of target ids."""
        return [candidates[0].ids for candidates in self.search_with(**options)(sources)]

    def pieces(self, text: str, glossary: Glossary | None = None, **options: Any) -> Pieces:
        """Return the pieces of a text that are translated one by one: its lines, and their sentences.

        `options` are settings of `DecodeConfig` that differ from the translator's own, such as `split="never"`.
        """
        decode = dataclasses.replace(self.decode, n_best=1, **options)
        line_of = self.reader.reading(decode, glossary=glossary or self.glossary)
        pieces = self._pieces_of_text(text, str, line_of, decode)
        lines = itertools.accumulate((gap == "\n" for gap in pieces.gaps), initial=1)
        long = [pair for pair in zip(pieces.texts, lines, strict=True) if len(pair[0].encode()) >= self.max_length]
        if long:  # without splitting, only their beginnings are read
            texts, numbers = zip(*long, strict=True)
            self.read(texts, numbers, pieces.notes.append)
        return pieces

    def translate_pieces(
        self, texts: Sequence[str], warn: Warn | None = None, scored: bool = False,
        numbers: Iterable[int] | None = None, **options: Any,
    ) -> list[list[ScoredText]]:  # fmt: skip
        """Return for each text its `n_best` translations; the texts are those of `pieces`, and are read as they are.

        Args:
            numbers: those that samples depend on; None: from 1 on.
            warn, scored, options: see `predict_stream`.
        """
        search = self.search_with(scored, **options)
        lines = [Line(Pieces([text], [], [])) for text in require_texts(texts)]
        return list(self._translate_window(search, lines, [""] * len(lines), numbers or itertools.count(1), warn))

    def joinable(self, line: Line) -> Pieces:
        """Return the pieces of a line; joined, they get its markup back."""
        marked = line.marked
        if marked is None:
            return line.pieces

        def joined(results: list[str]) -> str:
            return marked.restored(results, self.aligner(pairs) if (pairs := marked.to_align(results)) else [])

        return line.pieces._replace(joined=joined)

    def _translate_window(
        self,
        search: Any,
        lines: Sequence[Line],
        prefixes: Sequence[str],
        line_numbers: Iterable[int],
        warn: Warn | None,
    ) -> Iterator[list[ScoredText]]:
        """Yield the candidates of each line."""
        warn_of_cut_texts([note for line in lines for note in line.pieces.notes], warn)
        numbers = [
            number + SENTENCE_STRIDE * sentence
            for number, line in zip(line_numbers, lines, strict=False)
            for sentence in range(len(line.pieces.texts))
        ]
        texts = [text for line in lines for text in line.pieces.texts]
        sources = self.read(texts, [number % SENTENCE_STRIDE for number in numbers], warn)
        waiting = [index for index, ids in enumerate(sources) if ids]
        prefix_ids = None
        if any(prefixes):  # then every line is one piece
            prefix_ids = self._encode_prefixes([prefixes[index] for index in waiting])
        searched = search([sources[index] for index in waiting], [numbers[index] for index in waiting], prefix_ids)
        candidates_of = dict(zip(waiting, searched, strict=True))
        results = (candidates_of.get(index, EMPTY) for index in range(len(texts)))
        if not any(line.marked for line in lines):
            for line in lines:
                yield self._joined(line.pieces, list(itertools.islice(results, len(line.pieces.texts))))
            return
        written = [self._texts(list(itertools.islice(results, len(line.pieces.texts)))) for line in lines]
        yield from self._with_markup(lines, written)

    def _with_markup(
        self, lines: Sequence[Line], written: Sequence[list[tuple[list[str], float]]]
    ) -> Iterator[list[ScoredText]]:
        """Yield the candidates of each line; those with markup get it back, aligned in the same batches.

        Args:
            lines: as read.
            written: for each line its candidates: the texts of its pieces, and their score.
        """
        pairs = [
            line.marked.to_align(texts) if line.marked else []
            for line, candidates in zip(lines, written, strict=True)
            for texts, _ in candidates
        ]
        flat = [pair for each in pairs for pair in each]
        aligned = iter(self.aligner(flat) if flat else [])
        alignments = iter([list(itertools.islice(aligned, len(each))) for each in pairs])
        for line, candidates in zip(lines, written, strict=True):
            yield [
                ScoredText(line.marked.restored(texts, alignment) if line.marked else line.pieces.join(texts), score)
                for (texts, score), alignment in zip(candidates, alignments, strict=False)
            ]

    def _joined(self, pieces: Pieces, results: Sequence[Sequence[Candidate]]) -> list[ScoredText]:
        """Return the candidates of a line without markup."""
        return [ScoredText(pieces.join(texts), score) for texts, score in self._texts(results)]

    def _texts(self, results: Sequence[Sequence[Candidate]]) -> list[tuple[list[str], float]]:
        """Return the candidates of a line of one piece, or the best ones of several pieces: their texts, and a score.

        The score of several is the mean of theirs, weighted by their lengths.
        """
        decode = self.target_tokenizer.decode
        if len(results) == 1:
            return [([decode(ids)], score) for ids, score in results[0]]
        best = [candidates[0] for candidates in results]
        lengths = [len(ids) + 1 for ids, _ in best]  # with the end token
        score = sum(length * score for length, (_, score) in zip(lengths, best, strict=True)) / sum(lengths)
        return [([decode(ids) for ids, _ in best], score)]

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
            CutText(
                f"line {numbers[index]} has {len(sources[index])} tokens; only the first {max_tokens} are translated."
            )
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
