"""A translator that holds its model: translations, scores of given ones, and alternatives."""

import numpy as np
from keras import ops

from heedful import backend
from heedful.checked import one, several
from heedful.config import DecodeConfig
from heedful.errors import InputError
from heedful.generation.decoder import SOURCE_STEP, Decoder, require_room
from heedful.generation.lines import LineTranslator
from heedful.generation.scoring import Scorer
from heedful.models.ensemble import Ensemble
from heedful.models.precisions import Precisions
from heedful.special_tokens import END_ID, START_ID


class Translator(LineTranslator):
    """Translates lines of text with a trained encoder-decoder model, and says what the model thinks of translations.

    Args:
        model: a `Transformer`, or an `Ensemble`.
        source_tokenizer, target_tokenizer: what it was trained with.
        decode: a `DecodeConfig`.
    """

    def __init__(self, model, source_tokenizer, target_tokenizer, decode=None):
        precisions = Precisions(model)

        def new_decoder(decode, scored):
            return Decoder(precisions[decode.precision], decode, target_tokenizer, scored)

        super().__init__(new_decoder, source_tokenizer, target_tokenizer, decode or DecodeConfig(), model.max_length)
        self.trained_model, self._precisions = model, precisions
        self._scorers, self._readers = {}, {}

    @property
    def model(self):
        """The model in the precision of the settings."""
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
        """Return what else could follow `prefix` in the translation of `line`, and how each would continue.

        Args:
            line: a text.
            prefix: what the translation begins with, see `stream_candidates`.
            count: how many there shall be.
            warn, options: as in `translate`.

        Returns:
            `count` tuples, likeliest first: the next token, its log-probability in nats, and the whole translation that
            begins with it.
        """
        source, decoder = self._read([one(line)], 1, warn)[0], self._decoder(**options)
        if not source:
            raise InputError("There is no text to translate.")
        [begun] = self._begun([prefix])
        require_room(begun, decoder.most(len(source)))
        scores = self._scorer(decoder.model).next_token(source, begun)
        left_out = (END_ID, *decoder.forbidden)
        best = [int(token) for token in np.argsort(-scores) if token not in left_out][:count]
        found = [[*begun, token] for token in best]
        if len(begun) + 1 < decoder.most(len(source)):  # something can follow
            found = [candidates[0].ids for candidates in decoder([source] * len(best), prefixes=found)]
        texts = map(self.target_tokenizer.decode, found)
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
            if not text.endswith("\N{REPLACEMENT CHARACTER}"):  # half of a character is held back
                yield text[len(told) :]
                told = text

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
