"""Prompts in, text out: a language model with its tokenizer."""

import dataclasses

from heedful.checked import several
from heedful.config import OF_SOURCE, DecodeConfig
from heedful.errors import InputError
from heedful.generation.decoder import Continuer, Decoders
from heedful.models.precisions import Precisions
from heedful.special_tokens import END, START_ID

DEFAULT_LENGTH = 200  # tokens to write by default
ROUNDS = 1 << 32  # numbers of random streams: the line in the lower half, the round above it


class Generator:
    """Continues texts.

    A text that outgrows the model's context is written in rounds: the first until the context is full, each further one
    from the last half of it on.

    Args:
        model: a `CausalLM`.
        tokenizer: what it was trained with.
        decode: a `DecodeConfig`; `max_length` is the number of tokens to write (0: 200).
        starts: whether the model was trained on documents that begin with the start token.
    """

    def __init__(self, model, tokenizer, decode=None, starts=False):
        self.model, self.tokenizer, self.decode, self.starts = model, tokenizer, decode or DecodeConfig(), starts
        precisions = self._precisions = Precisions(model)
        self._decoders = Decoders(
            lambda decode, scored: Continuer(precisions[decode.precision], decode, tokenizer, scored)
        )

    @classmethod
    def from_run(cls, run):
        """Load the model of a `Run`."""
        return cls(run.load_model(), run.tokenizer, run.config.decode, run.config.data.packing == "documents")

    def refresh(self):
        """Continue with the weights that the model has now, where it has learned on."""
        self._precisions.refresh()

    def generate(self, prompts, warn=None, **options):
        """Continue a text, or each of a list of texts; return it, or them, with what follows.

        Args:
            prompts: a text gives a text, a list a list.
            warn: called with a message for each prompt that is empty, or longer than the model reads.
            options: settings of `DecodeConfig` for this call, such as `max_length=50`.
        """
        if isinstance(prompts, str):
            return self.candidates([prompts], warn, **options)[0][0][0]
        return [candidates[0][0] for candidates in self.candidates(prompts, warn, **options)]

    def candidates(self, prompts, warn=None, scored=False, **options):
        """Return for each prompt a list of (text, score): `n_best` of them, best first.

        Scores are in nats, with a beam divided by a penalty for the length as the settings say; of a text that was
        written in rounds the sum over them.

        Raises:
            InputError: an empty prompt for a model that cannot begin by itself (with `warn` such a prompt stays as it
                is), or settings that do not fit.
        """
        prompts = list(several(prompts))
        decode = self._for_call(options)
        texts = [_Text(number, self._read(prompt, number, warn)) for number, prompt in enumerate(prompts, start=1)]
        self._require_room(decode, max((len(text.prompt) for text in texts), default=0) + decode.max_length - 1)
        for text in texts:
            if not text.prompt:  # a warning has said so
                text.candidates, text.ended = [([], 0.0)] * decode.n_best, True
        turn = 0
        while waiting := [text for text in texts if not text.ended]:
            self._write_round(waiting, decode, scored, turn)
            turn += 1
        return [
            [(prompt + self._following(text.prompt, ids), score) for ids, score in text.candidates]
            for prompt, text in zip(prompts, texts, strict=True)
        ]

    def _for_call(self, options):
        """Return the settings with `options` for one call, as a language model takes them."""
        decode = self.decode.for_call(**options)
        asked = {name: name in options for name in OF_SOURCE} | {"coverage_penalty": decode.coverage_penalty > 0}
        if of_source := [name for name in OF_SOURCE if asked[name]]:
            raise InputError(f"{of_source[0]} is about a source; a language model has none.")
        if decode.sample or decode.beam_size == 1:  # what is written in rounds has a sum
            decode = dataclasses.replace(decode, length_penalty=0.0)
        return dataclasses.replace(decode, max_length=decode.max_length or max(DEFAULT_LENGTH, decode.min_length))

    def _require_room(self, decode, longest):
        """Refuse what cannot be had in rounds, if the `longest` prompt and its text do not fit into the context."""
        at_once = {"n_best": decode.n_best > 1, "no_repeat_ngram": decode.no_repeat_ngram > 0,
                   "repetition_penalty": decode.repetition_penalty != 1}  # fmt: skip
        wanted = [name for name, asked in at_once.items() if asked]
        if longest > self.model.max_length and wanted:
            raise InputError(
                f"decode.{wanted[0]} needs prompt and text to fit into the model's {self.model.max_length} tokens; "
                f"they have up to {longest}."
            )

    def _write_round(self, texts, decode, scored, turn):
        """Write until each of these texts has ended or its context is full."""
        context = self.model.max_length
        # At first all that fits of the prompt is read, then the last half of the context again.
        sources = [text.prompt[-context:] if turn == 0 else text.whole[-(context - context // 2) :] for text in texts]
        amounts = [
            min(decode.max_length - len(text.ids), context - len(source) + 1)
            for text, source in zip(texts, sources, strict=True)
        ]
        groups = {}
        for index, (text, amount) in enumerate(zip(texts, amounts, strict=True)):
            # One that must be longer than this round makes it may not end in it.
            ends = len(text.ids) + amount > decode.min_length
            least = max(0, decode.min_length - len(text.ids)) if ends else 0
            groups.setdefault((ends, least), []).append(index)
        for (ends, least), chosen in groups.items():
            forbidden = decode.forbidden if ends else (*decode.forbidden, END)
            settings = dataclasses.replace(decode, min_length=least, min_ratio=0.0, forbidden=forbidden)
            found = self._decoders(settings, scored)(
                [sources[index] for index in chosen],
                [texts[index].number + ROUNDS * turn for index in chosen],
                limits=[amounts[index] for index in chosen],
            )
            for index, candidates in zip(chosen, found, strict=True):
                texts[index].add(candidates, amounts[index], decode.max_length)

    def _read(self, prompt, number, warn):
        ids = self.tokenizer.encode(prompt)
        if not ids and not self.starts:
            if warn is None:
                raise InputError(f"Prompt {number} is empty: this model continues text, so give it some.")
            warn(f"prompt {number} is empty: this model continues text, and has none to continue.")
        if self.starts:
            ids = [START_ID, *ids]
        if len(ids) > self.model.max_length and warn:
            warn(
                f"prompt {number} has {len(ids)} tokens, more than the model's context of {self.model.max_length}: "
                "only its end is read."
            )
        return ids

    def _following(self, prompt, ids):
        """Return the text of `ids` as it follows the prompt, with the space between them if there is one."""
        before = self.tokenizer.decode(prompt)
        whole = self.tokenizer.decode([*prompt, *ids])
        return whole[len(before) :] if whole.startswith(before) else self.tokenizer.decode(ids)


class _Text:
    """A prompt and the text that has been written after it so far."""

    def __init__(self, number, prompt):
        self.number, self.prompt = number, prompt
        self.ids, self.score, self.candidates, self.ended = [], 0.0, [], False

    @property
    def whole(self):
        """Prompt and text."""
        return [*self.prompt, *self.ids]

    def add(self, candidates, amount, most):
        """Take in what a round found that had room for `amount` tokens; the text may have `most` in all."""
        best = candidates[0]
        self.candidates = [(self.ids + ids, self.score + score) for ids, score in candidates]
        self.ids, self.score = self.ids + best.ids, self.score + best.score
        self.ended = len(best.ids) < amount or len(self.ids) >= most
