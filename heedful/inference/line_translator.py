"""Translation line by line: tokenizes lines, decodes them with any search, and keeps their order."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from heedful.config import DecodeConfig
from heedful.core.errors import InputError
from heedful.core.line_stream import line_batches
from heedful.core.validation import require_texts
from heedful.data.normalization import is_blank
from heedful.data.tokenizer import Tokenizer
from heedful.inference.predictor import Predictor, ScoredText, Warn, warn_of_cut_texts, warn_of_other_forms

BATCHES_AHEAD = 50  # batches read ahead, so that sentences of similar length can be decoded together


class LineTranslator(Predictor):
    """Translates lines of text with a search: heedful's own (see `Translator`) or another engine's.

    Args:
        new_search: called with a `DecodeConfig` and whether greedy search computes scores; returns a search with the
            interface of `BatchSearch`.
        source_tokenizer, target_tokenizer: the tokenizers of the model.
        decode: default settings of all calls.
        max_length: maximum source length in tokens, end token included.
    """

    def __init__(
        self,
        new_search: Callable,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        decode: DecodeConfig,
        max_length: int,
    ):
        self.source_tokenizer, self.target_tokenizer = source_tokenizer, target_tokenizer
        self.decode, self.max_length = decode, max_length
        self._new_search = new_search

    def translate(self, lines: str | Iterable[str], warn: Warn | None = None, **options: Any) -> Any:
        """Translate a text, or a list of lines.

        Args:
            lines: a text, to get a text back, or an iterable of lines, to get a list. The translation of an empty or
                blank line is empty.
            warn: called with a message for each line that is longer than the model reads.
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
            InputError: there are fewer prefixes than lines, or one is too long.
        """
        search = self.search_with(scored, **options)
        given = prefixes is not None
        lines, prefixes = iter(require_texts(texts)), itertools.repeat("") if prefixes is None else iter(prefixes)
        began = first
        sampled = search.decode.sample  # samples must not depend on when other lines arrive
        for window in line_batches(lines, BATCHES_AHEAD * search.decode.batch_size, whole=sampled):
            begun = list(itertools.islice(prefixes, len(window)))
            if len(begun) < len(window):
                raise InputError(f"There are fewer prefixes ({first - began + len(begun)}) than lines.")
            yield from self._translate_window(search, window, begun, first, warn)
            first += len(window)
        if given and warn and next(prefixes, None) is not None:
            warn(f"there are more prefixes than lines ({first - began}).")

    def decode_ids(self, sources: list[list[int]], **options: Any) -> list[list[int]]:
        """Translate lists of source ids, without end tokens, to lists of target ids."""
        return [candidates[0].ids for candidates in self.search_with(**options)(sources)]

    def _translate_window(
        self, search: Any, lines: Sequence[str], prefixes: Sequence[str], first: int, warn: Warn | None
    ) -> list[list[ScoredText]]:
        sources = self.read(lines, first, warn)
        waiting = [index for index, ids in enumerate(sources) if ids]
        given = [prefixes[index] for index in waiting]
        begun = self._encode_prefixes(given) if any(given) else None
        translated = search([sources[index] for index in waiting], [first + index for index in waiting], begun)
        results = [[ScoredText("", 0.0)] for _ in lines]
        for index, candidates in zip(waiting, translated, strict=True):
            results[index] = [ScoredText(self.target_tokenizer.decode(ids), score) for ids, score in candidates]
        return results

    def read(self, lines: Sequence[str], first: int = 1, warn: Warn | None = None) -> list[list[int]]:
        """Return the source ids of lines, without end tokens, truncated to what the model reads.

        Args:
            lines: the texts.
            first: number of the first line, in warnings.
            warn: called with a message for each line that is truncated; None: an `InputWarning` tells of the first.
        """
        max_tokens = self.max_length - 1  # without the end token
        # Blank lines count as empty, although some tokenizers have tokens for white space.
        lines = ["" if is_blank(line) else line for line in lines]
        sources = self.source_tokenizer.encode_batch(lines)
        warn_of_other_forms(self.source_tokenizer, lines, sources)
        cut = [index for index, ids in enumerate(sources) if len(ids) > max_tokens]
        warn_of_cut_texts(
            [
                f"line {first + i} has {len(sources[i])} tokens; only the first {max_tokens} are translated."
                for i in cut
            ],
            warn,
        )
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
