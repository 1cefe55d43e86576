"""Prompts in, text out: a language model with its tokenizer."""

import dataclasses

from heedful.config import DecodeConfig
from heedful.data.tokenizer import START_ID
from heedful.errors import InputError
from heedful.generation.decoder import Continuer

DEFAULT_LENGTH = 200  # tokens written where nobody says how many
ROUNDS = 1 << 32  # numbers of random streams: the line in the lower half, the round above it


class Generator:
    """Continues texts.

    A text that outgrows the model's context is written in rounds: each reads the last half of the context again and
    writes up to another half.

    Args:
        model: a `CausalLM`.
        tokenizer: what it was trained with.
        decode: a `DecodeConfig`; `max_length` is the number of tokens to write (0: 200).
        starts: whether the model was trained on documents that begin with the start token.
    """

    def __init__(self, model, tokenizer, decode=None, starts=False):
        self.model, self.tokenizer, self.decode, self.starts = model, tokenizer, decode or DecodeConfig(), starts
        self._decoders = {}

    @classmethod
    def from_run(cls, run):
        """Load the model of a `Run`."""
        return cls(run.load_model(), run.tokenizer, run.config.decode, run.config.data.packing == "documents")

    def generate(self, prompts, warn=None, **options):
        """Continue a text, or each of a list of texts; return it, or them, with what follows.

        Args:
            prompts: a text gives a text, a list a list.
            warn: called with a message for each prompt that is longer than the model reads.
            options: settings of `DecodeConfig` for this call, such as `max_length=50`.
        """
        if isinstance(prompts, str):
            return self.candidates([prompts], warn, **options)[0][0][0]
        return [candidates[0][0] for candidates in self.candidates(prompts, warn, **options)]

    def candidates(self, prompts, warn=None, scored=False, **options):
        """Return for each prompt a list of (text, score): `n_best` of them, best first.

        Scores are in nats; of a text that was written in rounds the sum over them.

        Raises:
            InputError: an empty prompt for a model that cannot begin by itself, or settings that do not fit.
        """
        decode = dataclasses.replace(self.decode, **options)
        if decode.coverage_penalty:
            raise InputError("decode.coverage_penalty is about a source; a language model has none.")
        if not decode.max_length:
            decode = dataclasses.replace(decode, max_length=max(DEFAULT_LENGTH, decode.min_length))
        texts = [_Text(number, self._read(prompt, number, warn)) for number, prompt in enumerate(prompts, start=1)]
        longest = max((len(text.prompt) for text in texts), default=0)
        if decode.n_best > 1 and longest + decode.max_length - 1 > self.model.max_length:
            raise InputError(
                f"n_best > 1 needs prompt and text to fit into the model's {self.model.max_length} tokens; "
                f"they have up to {longest + decode.max_length - 1}."
            )
        turn = 0
        while waiting := [text for text in texts if not text.ended]:
            self._write_round(waiting, decode, scored, turn)
            turn += 1
        return [
            [(prompt + self._following(text.prompt, ids), score) for ids, score in text.candidates]
            for prompt, text in zip(prompts, texts, strict=True)
        ]

    def _write_round(self, texts, decode, scored, turn):
        """Write until all of these texts have ended, or half of the context is full."""
        context = self.model.max_length
        half = max(1, context // 2)
        written = len(texts[0].ids)  # the same for all that have not ended
        left = decode.max_length - written
        fits = max(len(text.prompt) for text in texts) + decode.max_length - 1 <= context
        amount = left if fits else min(left, half)
        sources = [[*text.prompt, *text.ids][-(context - amount + 1) :] if not fits else text.prompt for text in texts]
        settings = dataclasses.replace(
            decode, max_length=amount, min_length=min(amount, max(0, decode.min_length - written))
        )
        numbers = [text.number + ROUNDS * turn for text in texts]
        for text, found in zip(texts, self._decoder(settings, scored)(sources, numbers), strict=True):
            best = found[0]
            text.candidates = [(text.ids + ids, text.score + score) for ids, score in found]
            text.ids, text.score = text.ids + best.ids, text.score + best.score
            text.ended = len(best.ids) < amount or len(text.ids) >= decode.max_length

    def _read(self, prompt, number, warn):
        ids = self.tokenizer.encode(prompt)
        if not ids and not self.starts:
            raise InputError(f"Prompt {number} is empty: this model continues text, so give it some.")
        if self.starts:
            ids = [START_ID, *ids]
        if len(ids) > self.model.max_length and warn:
            warn(
                f"prompt {number} has {len(ids)} tokens, more than the model's context of {self.model.max_length}: "
                "only its end is read."
            )
        return ids

    def _following(self, prompt, ids):
        """Return the text of `ids` as it stands behind the prompt, with the space between them if there is one."""
        before = self.tokenizer.decode(prompt)
        whole = self.tokenizer.decode([*prompt, *ids])
        return whole[len(before) :] if whole.startswith(before) else self.tokenizer.decode(ids)

    def _decoder(self, decode, scored):
        if (decode, scored) not in self._decoders:
            self._decoders[decode, scored] = Continuer(self.model, decode, self.tokenizer, scored)
        return self._decoders[decode, scored]


class _Text:
    """A prompt and what has been written behind it so far."""

    def __init__(self, number, prompt):
        self.number, self.prompt = number, prompt
        self.ids, self.score, self.candidates, self.ended = [], 0.0, [], False
