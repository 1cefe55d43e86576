"""Text in, text out: lines are tokenized, sorted by length, decoded in batches, and come back in their order."""

import itertools

import numpy as np

from heedful import backend
from heedful.config import DecodeConfig
from heedful.data.encoded import Ragged
from heedful.data.examples import END_ID, START_ID, source_ids
from heedful.generation.search import greedy
from heedful.run import Run

WINDOW = 50  # batches read ahead, so that sentences of like length can be decoded together
LENGTH_STEP = 16  # source lengths are rounded up to this: few shapes to compile, little padding


def load(path):
    """Return a `Translator` with the weights of the run folder `path`.

    Raises:
        InputError: the folder is missing, incomplete, of a newer format, or its weights do not fit its config.
    """
    return Translator.from_run(Run.open(path))


class Translator:
    """Translates lines of text with a trained encoder-decoder model.

    Args:
        model: a `Transformer`.
        source_tokenizer, target_tokenizer: what it was trained with.
        decode: a `DecodeConfig`.
    """

    def __init__(self, model, source_tokenizer, target_tokenizer, decode=None):
        self.model, self.decode = model, decode or DecodeConfig()
        self.source_tokenizer, self.target_tokenizer = source_tokenizer, target_tokenizer
        self._programs = {}

    @classmethod
    def from_run(cls, run):
        """Load the model of a `Run`."""
        return cls(run.load_model(), run.source_tokenizer, run.target_tokenizer, run.config.decode)

    def translate(self, lines, warn=None):
        """Translate a text, or a list of lines.

        Args:
            lines: a text gives a text; an iterable of lines gives a list of as many lines. Empty lines stay empty.
            warn: called with a message for each line that is longer than the model reads.
        """
        if isinstance(lines, str):
            return next(self.stream([lines], warn))
        return list(self.stream(lines, warn))

    def stream(self, lines, warn=None):
        """Yield a translation for each line of an iterable, in its order; reads some batches ahead."""
        lines = iter(lines)
        first = 1
        while window := list(itertools.islice(lines, WINDOW * self.decode.batch_size)):
            yield from self._translate_window(window, first, warn)
            first += len(window)

    def _translate_window(self, lines, first, warn):
        room = self.model.max_length - 1  # the end token takes a place
        sources = self.source_tokenizer.encode_batch(lines)
        for index, ids in enumerate(sources):
            if len(ids) > room:
                if warn:
                    warn(f"line {first + index} has {len(ids)} tokens; only the first {room} are translated.")
                sources[index] = ids[:room]
        waiting = [i for i in np.argsort([len(ids) for ids in sources], kind="stable")[::-1] if sources[i]]
        results = [""] * len(lines)
        for start in range(0, len(waiting), self.decode.batch_size):
            rows = waiting[start : start + self.decode.batch_size]
            made = self.decode_ids([sources[i] for i in rows])
            for row, ids in zip(rows, made, strict=True):
                results[row] = self.target_tokenizer.decode(ids)
        return results

    def decode_ids(self, sources):
        """Translate lists of source ids (without end tokens) to lists of target ids, in one batch."""
        lengths = np.array([len(ids) for ids in sources])
        longest = min(-(-(lengths.max() + 1) // LENGTH_STEP) * LENGTH_STEP, self.model.max_length)
        batch_size = _round_up(len(sources), self.decode.batch_size)
        rows = np.full(batch_size, -1)
        rows[: len(sources)] = np.arange(len(sources))
        limits = np.zeros(batch_size, np.int32)
        limits[: len(sources)] = self._limit(lengths)
        source = source_ids(Ragged.of(sources), rows, longest)
        max_steps = int(self._limit(longest))
        made = np.asarray(backend.to_numpy(self._program(max_steps)(source, limits)))
        return [_until_end(ids) for ids in made[: len(sources)]]

    def _limit(self, lengths):
        wanted = lengths * self.decode.max_ratio + self.decode.max_extra
        return np.minimum(wanted, self.model.max_length).astype(np.int32)

    def _program(self, max_steps):
        if max_steps not in self._programs:

            def search(source, limits):
                return greedy(self.model, source, limits, max_steps=max_steps, start_id=START_ID, end_id=END_ID)

            self._programs[max_steps] = backend.compiled(search, self.model)
        return self._programs[max_steps]


def _round_up(count, batch_size):
    """Return the batch size to compile for: the full one, or the next power of two for a few sentences."""
    return min(batch_size, 1 << (count - 1).bit_length())


def _until_end(ids):
    """Cut off the end token or padding and all behind it."""
    stop = np.flatnonzero((ids == END_ID) | (ids == 0))
    return ids[: stop[0]].tolist() if len(stop) else ids.tolist()
