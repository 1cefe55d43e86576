"""Text generation: a language model with its tokenizer."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from heedful.backend.program_cache import ProgramCache
from heedful.config import OF_SOURCE, DecodeConfig
from heedful.core.errors import InputError
from heedful.core.special_tokens import END, START_ID
from heedful.core.validation import require_text, require_texts
from heedful.data.tokenizer import Tokenizer
from heedful.decoding.prompt_search import PromptSearch
from heedful.inference.predictor import Predictor, ScoredText, Warn, require_vocabulary, warn_of_cut_texts
from heedful.inference.token_stream import new_text
from heedful.models.precisions import Precisions
from heedful.runs.run import Run

DEFAULT_LENGTH = 200  # tokens to write by default
ROUNDS = 1 << 32  # random stream of a text: its number in the lower 32 bits, the round in the upper 32


class Generator(Predictor):
    """Continues prompts.

    A text that outgrows the model's context is generated in rounds: the first one fills the context, and each further
    one continues from the last half of it.

    Args:
        model: a `CausalLM`.
        tokenizer: the one it was trained with.
        decode: default settings of all calls; `max_length` is the number of tokens to write (0: 200).
        starts: whether the model was trained on documents that begin with the start token.
    """

    def __init__(self, model: Any, tokenizer: Tokenizer, decode: DecodeConfig | None = None, starts: bool = False):
        require_vocabulary(model, vocab_size=tokenizer)
        self.model, self.tokenizer, self.decode, self.starts = model, tokenizer, decode or DecodeConfig(), starts
        self._precisions, self._programs = Precisions(model), ProgramCache()

    @classmethod
    def from_run(cls, run: Run, decode: DecodeConfig | None = None) -> "Generator":
        """Load the model of a `Run`; `decode` replaces the settings of the run."""
        starts = run.task.starts_texts(run.config)
        return cls(run.load_model(), run.tokenizer, decode or run.config.decode, starts)

    def refresh(self) -> None:
        self._precisions.refresh()

    def generate(self, prompts: str | Iterable[str], warn: Warn | None = None, **options: Any) -> Any:
        """Continue a prompt, or each prompt of a list; return prompt and continuation.

        Args:
            prompts: a text, to get a text back, or a list of texts, to get a list.
            warn: called with a message for each prompt that is empty, or longer than the model reads.
            options: settings of `DecodeConfig` for this call, such as `max_length=50`.
        """
        if isinstance(prompts, str):
            return self.candidates([prompts], warn, **options)[0][0].text
        return [candidates[0].text for candidates in self.candidates(prompts, warn, **options)]

    def predict_stream(
        self, texts: Iterable[str], warn: Warn | None = None, scored: bool = False,
        numbers: Iterable[int] | None = None, **options: Any,
    ) -> Iterator[list[ScoredText]]:  # fmt: skip
        """Yield the `n_best` texts of each prompt, see `candidates`. All prompts are read before the first text."""
        yield from self.candidates(texts, warn, scored, numbers, **options)

    def candidates(
        self, prompts: Iterable[str], warn: Warn | None = None, scored: bool = False,
        numbers: Iterable[int] | None = None, **options: Any,
    ) -> list[list[ScoredText]]:  # fmt: skip
        """Return for each prompt its `n_best` texts, best first.

        Scores are in nats; those of a beam are normalised by length as configured. The score of a text generated in
        rounds is the sum over the rounds. `numbers` are those of the prompts, which samples depend on; None: from 1 on.

        Raises:
            InputError: a prompt is empty, but the model needs one (with `warn` it is returned as is), or the settings
                are not supported.
        """
        prompts = list(require_texts(prompts))
        return [
            [ScoredText(prompt + each.text, each.score) for each in continuations]
            for prompt, continuations in zip(
                prompts, self.continuations(prompts, warn, scored, numbers, **options), strict=True
            )
        ]

    def continuations(
        self, prompts: Iterable[str], warn: Warn | None = None, scored: bool = False,
        numbers: Iterable[int] | None = None, **options: Any,
    ) -> list[list["Continuation"]]:  # fmt: skip
        """Return for each prompt its `n_best` continuations, best first; for arguments and errors see `candidates`."""
        decode = self._for_call(options)
        texts = [
            _Text(number, self._read(prompt, number, warn))
            for number, prompt in zip(numbers or itertools.count(1), require_texts(prompts), strict=False)
        ]
        self._require_context(decode, max((len(text.prompt) for text in texts), default=0) + decode.max_length - 1)
        for text in texts:
            if not text.prompt:  # a warning has said so
                text.candidates, text.ended = [([], 0.0)] * decode.n_best, True
        round_number = 0
        while waiting := [text for text in texts if not text.ended]:
            self._write_round(waiting, decode, scored, round_number)
            round_number += 1
        return [
            [
                Continuation(self._following(text.prompt, ids), score, len(ids), len(ids) >= decode.max_length)
                for ids, score in text.candidates
            ]
            for text in texts
        ]

    def stream_tokens(self, prompt: str, warn: Warn | None = None, number: int = 1, **options: Any) -> Iterator[str]:
        """Yield the continuation of one prompt piece by piece, each as soon as its token is chosen.

        Args:
            prompt, warn: see `generate`.
            number: of the prompt, on which a sample depends.
            options: see `generate`. Tokens are chosen greedily or sampled; a configured beam is ignored.
        """
        decode = self._for_call({"beam_size": 1, "n_best": 1} | options)
        ids = self._read(require_text(prompt), number, warn)
        self._require_context(decode, len(ids) + decode.max_length - 1)
        if ids:
            yield from new_text(self.tokenizer, self._stream_ids(_Text(number, ids), decode), ids)

    def _stream_ids(self, text: "_Text", decode: DecodeConfig) -> Iterator[int]:
        round_number = 0
        while not text.ended:
            source, amount = self._round(text, decode, round_number)
            search = self._search(_round_settings(text, decode, amount, max_length=amount), scored=False)
            ids = []
            for token in search.stream(source, text.number + ROUNDS * round_number):
                ids.append(token)
                yield token
            text.add([(ids, 0.0)], amount, decode.max_length)
            round_number += 1

    def _search(self, decode: DecodeConfig, scored: bool) -> PromptSearch:
        return PromptSearch(self._precisions[decode.precision], decode, self.tokenizer, scored, self._programs)

    def _for_call(self, options: Mapping[str, Any]) -> DecodeConfig:
        """Return the settings with `options` for one call, as a language model uses them."""
        decode = self.decode.for_call(**options)
        asked = {name: name in options for name in OF_SOURCE} | {"coverage_penalty": decode.coverage_penalty > 0}
        if of_source := [name for name in OF_SOURCE if asked[name]]:
            raise InputError(f"{of_source[0]} applies only to translation.")
        if decode.sample or decode.beam_size == 1:  # the score of a text written in rounds is a sum
            decode = dataclasses.replace(decode, length_penalty=0.0)
        return dataclasses.replace(decode, max_length=decode.max_length or max(DEFAULT_LENGTH, decode.min_length))

    def max_tokens(self, **options: Any) -> int:
        """Return how many tokens a call with these options writes at most."""
        return self._for_call(options).max_length

    def _require_context(self, decode: DecodeConfig, longest: int) -> None:
        """Raise `InputError` if the `longest` text exceeds the context and a setting does not work in rounds."""
        at_once = {"n_best": decode.n_best > 1, "no_repeat_ngram": decode.no_repeat_ngram > 0,
                   "repetition_penalty": decode.repetition_penalty != 1}  # fmt: skip
        wanted = [name for name, asked in at_once.items() if asked]
        if longest > self.model.max_length and wanted:
            raise InputError(
                f"decode.{wanted[0]} needs prompt and text to fit into the model's {self.model.max_length} tokens; "
                f"they have up to {longest}."
            )

    def _round(self, text: "_Text", decode: DecodeConfig, round_number: int) -> tuple[list[int], int]:
        """Return the input of a round, and the maximum number of tokens to generate."""
        context = self.model.max_length
        source = text.prompt[-context:] if round_number == 0 else text.whole[-(context - context // 2) :]
        return source, min(decode.max_length - len(text.ids), context - len(source) + 1)

    def _write_round(self, texts: Sequence["_Text"], decode: DecodeConfig, scored: bool, round_number: int) -> None:
        """Generate until each of these texts has ended or its context is full."""
        rounds = [self._round(text, decode, round_number) for text in texts]
        groups: dict[DecodeConfig, list[int]] = {}
        for index, (text, (_, amount)) in enumerate(zip(texts, rounds, strict=True)):
            groups.setdefault(_round_settings(text, decode, amount), []).append(index)
        for settings, chosen in groups.items():
            results = self._search(settings, scored)(
                [rounds[index][0] for index in chosen],
                [texts[index].number + ROUNDS * round_number for index in chosen],
                limits=[rounds[index][1] for index in chosen],
            )
            for index, candidates in zip(chosen, results, strict=True):
                texts[index].add(candidates, rounds[index][1], decode.max_length)

    def _read(self, prompt: str, number: int, warn: Warn | None) -> list[int]:
        ids = self.tokenizer.encode(prompt)
        if not ids and not self.starts:
            if warn is None:
                raise InputError(f"Prompt {number} is empty: this model continues text, so give it some.")
            warn(f"prompt {number} is empty: this model continues text, and has none to continue.")
        if self.starts:
            ids = [START_ID, *ids]
        if len(ids) > self.model.max_length:
            message = (
                f"prompt {number} has {len(ids)} tokens, more than the model's context of {self.model.max_length}: "
                "only its end is read."
            )
            warn_of_cut_texts([message], warn)
        return ids

    def _following(self, prompt: list[int], ids: list[int]) -> str:
        """Return the text of `ids` as it follows the prompt, with the space between them if there is one."""
        before = self.tokenizer.decode(prompt)
        whole = self.tokenizer.decode([*prompt, *ids])
        return whole[len(before) :] if whole.startswith(before) else self.tokenizer.decode(ids)


class Continuation(NamedTuple):
    """What a model has written after a prompt."""

    text: str
    score: float
    """See `ScoredText`."""
    tokens: int
    is_cut: bool
    """Whether it ended because it has `max_length` tokens."""


class _Text:
    """A prompt and its continuation so far."""

    def __init__(self, number: int, prompt: list[int]):
        self.number, self.prompt = number, prompt
        self.ids: list[int] = []
        self.candidates: list[tuple[list[int], float]] = []
        self.score, self.ended = 0.0, False

    @property
    def whole(self) -> list[int]:
        """Prompt and text."""
        return [*self.prompt, *self.ids]

    def add(self, candidates: Sequence[Any], amount: int, max_length: int) -> None:
        """Append the results of a round of up to `amount` tokens; the continuation may have `max_length` in all."""
        ids, score = candidates[0]
        self.candidates = [(self.ids + more, self.score + more_score) for more, more_score in candidates]
        self.ended = len(ids) < amount or len(self.ids) + len(ids) >= max_length
        self.ids, self.score = self.ids + ids, self.score + score


def _round_settings(text: _Text, decode: DecodeConfig, amount: int, **more: Any) -> DecodeConfig:
    """Return the settings of a round of up to `amount` tokens."""
    # A text must not end in a round that cannot take it beyond its minimum length.
    ends = len(text.ids) + amount > decode.min_length
    min_length = max(0, decode.min_length - len(text.ids)) if ends else 0
    forbidden = decode.forbidden if ends else (*decode.forbidden, END)
    return dataclasses.replace(decode, min_length=min_length, min_ratio=0.0, forbidden=forbidden, **more)
