"""Text in, text out: lines are tokenized, decoded by whatever searches, and come back in their order."""

import itertools

from heedful.arriving import windows
from heedful.checked import several
from heedful.errors import InputError
from heedful.generation.decoder import Decoders

WINDOW = 50  # batches read ahead, so that sentences of like length can be decoded together


class LineTranslator:
    """Translates lines of text with decoders: our own, see `Translator`, or another engine's.

    Args:
        new_decoder: from a `DecodeConfig`, and whether greedy search is scored, to what is called as a `Decoder`.
        source_tokenizer, target_tokenizer: of the model.
        decode: a `DecodeConfig`.
        max_length: most tokens that the model reads, its end token included.
    """

    def __init__(self, new_decoder, source_tokenizer, target_tokenizer, decode, max_length):
        self.source_tokenizer, self.target_tokenizer = source_tokenizer, target_tokenizer
        self.decode, self.max_length = decode, max_length
        self._decoders = Decoders(new_decoder)

    def translate(self, lines, warn=None, **options):
        """Translate a text, or a list of lines.

        Args:
            lines: a text gives a text; an iterable of lines gives a list of as many lines. Of a line without text, or
                with white space only, comes an empty one.
            warn: called with a message for each line that is longer than the model reads.
            options: settings of `DecodeConfig` for this call, such as `beam_size=4`.
        """
        if isinstance(lines, str):
            return next(self.stream([lines], warn, **options))
        return list(self.stream(lines, warn, **options))

    def stream(self, lines, warn=None, **options):
        """Yield a translation for each line of an iterable, in its order; reads some batches ahead."""
        for candidates in self.stream_candidates(lines, warn, **options):
            yield candidates[0][0]

    def n_best(self, lines, warn=None, **options):
        """Return for each of a list of lines a list of (translation, score), best first.

        There are `n_best` of them, one for an empty line. Scores are log-probabilities in nats, divided by a penalty
        for the length as the settings say.
        """
        return list(self.stream_candidates(lines, warn, scored=True, **options))

    def stream_candidates(self, lines, warn=None, scored=False, prefixes=None, **options):
        """Yield for each line its list of (translation, score).

        Args:
            lines: as in `translate`; of an iterator that can say what has arrived, see `windows`, no more is awaited,
                unless tokens are sampled.
            warn, options: as in `translate`.
            scored: have greedy search add up scores too; they are 0 without.
            prefixes: for each line the text that its translation must begin with, which may end within a word. White
                space at its end is not part of it, unless it is a token of its own, as where tokens are characters.
                None: nothing.

        Raises:
            InputError: there are fewer prefixes than lines, or one leaves no room.
        """
        decoder = self._decoder(scored, **options)
        given = prefixes is not None
        lines, prefixes = iter(several(lines)), iter(prefixes) if given else itertools.repeat("")
        first = 1
        sampled = decoder.decode.sample  # samples must not depend on when other lines arrive
        for window in windows(lines, WINDOW * decoder.decode.batch_size, whole=sampled):
            begun = list(itertools.islice(prefixes, len(window)))
            if len(begun) < len(window):
                raise InputError(f"There are {first - 1 + len(begun)} prefixes, and more lines than that.")
            yield from self._translate_window(decoder, window, begun, first, warn)
            first += len(window)
        if given and warn and next(prefixes, None) is not None:
            warn(f"there are more prefixes than lines, which are {first - 1}.")

    def decode_ids(self, sources, **options):
        """Translate lists of source ids, without end tokens, to lists of target ids."""
        return [candidates[0].ids for candidates in self._decoder(**options)(sources)]

    def _translate_window(self, decoder, lines, prefixes, first, warn):
        sources = self._read(lines, first, warn)
        waiting = [index for index, ids in enumerate(sources) if ids]
        begun = self._begun([prefixes[index] for index in waiting])
        made = decoder(
            [sources[index] for index in waiting], [first + index for index in waiting], begun if any(begun) else None
        )
        results = [[("", 0.0)] for _ in lines]
        for index, candidates in zip(waiting, made, strict=True):
            results[index] = [(self.target_tokenizer.decode(ids), score) for ids, score in candidates]
        return results

    def _read(self, lines, first=1, warn=None):
        """Return the source ids of lines, cut to what the model reads."""
        room = self.max_length - 1  # the end token takes a place
        # White space alone is no text, though a tokenizer that can give it back makes tokens of it.
        sources = self.source_tokenizer.encode_batch(line if line.strip() else "" for line in lines)
        for index, ids in enumerate(sources):
            if len(ids) > room:
                if warn:
                    warn(f"line {first + index} has {len(ids)} tokens; only the first {room} are translated.")
                sources[index] = ids[:room]
        return sources

    def _decoder(self, scored=False, **options):
        return self._decoders(self.decode.for_call(**options), scored)

    def _begun(self, prefixes):
        """Return the ids of prefixes, without white space at the end where it is the next word's to bring."""
        carried = self.target_tokenizer.carries_spaces
        return self.target_tokenizer.encode_batch(text.rstrip() if carried else text for text in prefixes)
