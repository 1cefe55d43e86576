"""Text in, text out: lines are tokenized, decoded and come back in their order."""

import itertools

import numpy as np
from keras import ops

from heedful import backend
from heedful.arriving import windows
from heedful.checked import one, several
from heedful.config import DecodeConfig
from heedful.data.tokenizer import END_ID, START_ID
from heedful.errors import InputError
from heedful.generation.decoder import SOURCE_STEP, Decoder, Decoders, require_room
from heedful.generation.scoring import Scorer
from heedful.models.ensemble import Ensemble
from heedful.models.precisions import Precisions

NOT_HERE = "Only heedful's own engine scores, gives alternatives and streams: load the run with it."
WINDOW = 50  # batches read ahead, so that sentences of like length can be decoded together


class Translator:
    """Translates lines of text with a trained encoder-decoder model.

    Args:
        model: a `Transformer`, or an `Ensemble`.
        source_tokenizer, target_tokenizer: what it was trained with.
        decode: a `DecodeConfig`.
    """

    def __init__(self, model, source_tokenizer, target_tokenizer, decode=None):
        self.trained_model, self._precisions, self.decode = model, Precisions(model), decode or DecodeConfig()
        self.source_tokenizer, self.target_tokenizer = source_tokenizer, target_tokenizer
        self.max_length = model.max_length if model else None
        self._scorers, self._readers = {}, {}
        precisions = self._precisions
        self._decoders = Decoders(
            lambda decode, scored: Decoder(precisions[decode.precision], decode, target_tokenizer, scored)
        )

    @property
    def model(self):
        """The model in the precision of the settings; `InputError` where another engine translates, without one."""
        if self.trained_model is None:
            raise InputError(NOT_HERE)
        return self._precisions[self.decode.precision]

    def refresh(self):
        """Translate with the weights that the model has now, where it has learned on."""
        self._precisions.refresh()

    @classmethod
    def from_run(cls, run):
        """Load the model of a `Run`."""
        return cls.from_runs([run])

    @classmethod
    def from_runs(cls, runs):
        """Load the models of one or several `Run`s; several vote on each token."""
        first = runs[0]
        for run in runs[1:]:
            if run.fingerprints() != first.fingerprints():
                raise InputError(f"{first.path} and {run.path} have different vocabularies: they cannot vote.")
        models = [run.load_model() for run in runs]
        model = models[0] if len(models) == 1 else Ensemble(models)
        return cls(model, first.source_tokenizer, first.target_tokenizer, first.config.decode)

    @classmethod
    def with_decoder(cls, run, make_decoder, decode):
        """Return a translator of a `Run` whose decoders come from `make_decoder(decode, scored)`: another engine."""
        translator = cls(None, run.source_tokenizer, run.target_tokenizer, decode)
        translator.max_length, translator._decoders = run.config.model.max_length, Decoders(make_decoder)
        return translator

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
            lines: as in `translate`; of an iterator that can say what has arrived, see `windows`, no more is awaited.
            warn, options: as in `translate`.
            scored: have greedy search add up scores too; they are 0 without.
            prefixes: for each line the text that its translation must begin with; None: nothing.

        Raises:
            InputError: there are fewer prefixes than lines, or one leaves no room.
        """
        decoder = self._decoder(scored, **options)
        given = prefixes is not None
        lines, prefixes = iter(several(lines)), iter(prefixes) if given else itertools.repeat("")
        first = 1
        for window in windows(lines, WINDOW * decoder.decode.batch_size):
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

    def score(self, lines, references, warn=None):
        """Return the log-probability in nats of each token of each reference, the end token last: a list of arrays.

        `warn` is called with a message for each line that is longer than the model reads.

        Raises:
            InputError: there are not as many references as lines, or one is longer than what the model writes.
        """
        sources, targets = self._read(several(lines), 1, warn), self.target_tokenizer.encode_batch(several(references))
        if len(sources) != len(targets):
            raise InputError(f"There are {len(sources)} lines, and {len(targets)} references.")
        for number, ids in enumerate(targets, start=1):
            if len(ids) >= self.max_length:
                raise InputError(f"Reference {number} has {len(ids)} tokens; the model writes {self.max_length - 1}.")
        return self._scorer(self.model)(sources, targets)

    def alternatives(self, line, prefix="", count=5, warn=None, **options):
        """Say what else could stand behind `prefix` in the translation of `line`, and how it would go on.

        Args:
            line: a text.
            prefix: what the translation begins with.
            count: how many there shall be.
            warn, options: as in `translate`.

        Returns:
            `count` tuples, likeliest first: the next token, its log-probability in nats, and the whole translation that
            begins with it.
        """
        if self.trained_model is None:
            raise InputError(NOT_HERE)
        source, decoder = self._read([one(line)], 1, warn)[0], self._decoder(**options)
        if not source:
            raise InputError("There is no text to translate.")
        [begun] = self._begun([prefix])
        require_room(begun, decoder.most(len(source)))
        scores = self._scorer(decoder.model).next_token(source, begun)
        left_out = (END_ID, *decoder.forbidden)
        best = [int(token) for token in np.argsort(-scores) if token not in left_out][:count]
        made = decoder([source] * len(best), prefixes=[[*begun, token] for token in best])
        texts = [self.target_tokenizer.decode(candidates[0].ids) for candidates in made]
        pieces = self.target_tokenizer.pieces(best)
        return [(piece, float(scores[token]), text) for piece, token, text in zip(pieces, best, texts, strict=True)]

    def stream_tokens(self, line, warn=None):
        """Yield the greedy translation of one line piece by piece, as it is made; rules of `decode` are not applied.

        `warn` is called with a message if the line is longer than the model reads.
        """
        ids = self._read([one(line)], 1, warn)[0]
        if not ids:
            return
        length = min(-(-(len(ids) + 1) // SOURCE_STEP) * SOURCE_STEP, self.max_length)  # few shapes to compile
        source = np.zeros((1, length), np.int32)
        source[0, : len(ids) + 1] = [*ids, END_ID]
        limit = self._decoder().most(len(ids))
        if self.model not in self._readers:
            self._readers[self.model] = _Reader(self.model)
        reader = self._readers[self.model]
        memory, past = reader.begin(source)
        made, told, last = [], "", START_ID
        while len(made) < limit:
            last, past = reader.step(last, memory, past, len(made))
            if last == END_ID:
                return
            made.append(last)
            text = self.target_tokenizer.decode(made)
            if not text.endswith("\N{REPLACEMENT CHARACTER}"):  # half of a character is not told yet
                yield text[len(told) :]
                told = text

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
        """Return the ids of prefixes; a space at the end is left to the word that follows, where words carry it."""
        carried = self.target_tokenizer.carries_spaces
        return self.target_tokenizer.encode_batch(text.rstrip() if carried else text for text in prefixes)

    def _scorer(self, model):
        if model not in self._scorers:
            self._scorers[model] = Scorer(model, self.decode.batch_size)
        return self._scorers[model]


class _Reader:
    """Greedy search one token at a time, for whoever watches; a sentence alone."""

    def __init__(self, model):
        room = model.max_length
        places = ops.arange(room)[None, None, None]

        def begin(source):
            return model.begin(source), model.room(1, room)

        def step(last, memory, past, place):
            last, place = (ops.convert_to_tensor(x, "int32") for x in (last, place))
            visible = places <= place
            logits, past = model.step(last, memory, past, place=place, positions=place[None], visible=visible)
            return ops.argmax(logits[0, 0]), past

        self.begin = backend.compiled(begin, model, loop=True)
        self._step = backend.compiled(step, model, loop=True)

    def step(self, last, memory, past, place):
        """Read the id `last` at `place`; return the next id and the caches."""
        ids, past = self._step(np.array([[last]], np.int32), memory, past, np.array(place, np.int32))
        return int(backend.to_numpy(ids)), past
