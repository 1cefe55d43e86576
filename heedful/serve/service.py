"""The runs of a server by name, and what all interfaces ask of them."""

import concurrent.futures
import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from heedful.core.errors import InputError
from heedful.data.sentences import Pieces
from heedful.inference.predictor import discard_warning
from heedful.inference.text_embedder import TextEmbedder
from heedful.runs.run import Run
from heedful.serve.engine import Busy, Engine, following
from heedful.serve.requests import RETRY_AFTER, Limits, Refused
from heedful.tasks.task import Task


@dataclass
class Served:
    """A run that is served."""

    name: str
    run: Run
    engine: Engine
    languages: tuple[str, str]
    """Codes of source and target; `source` and `target` if they are unknown, or it is no translator."""

    @property
    def task(self) -> Task:
        """Its task."""
        return self.run.task

    @property
    def predictor(self) -> Any:
        return self.engine.predictor


class Service:
    """All served runs.

    Args:
        served: by name; the first one answers requests that name none.
        limits: of requests.
    """

    def __init__(self, served: Sequence[Served], limits: Limits):
        self.runs = {each.name: each for each in served}
        self.limits = limits
        self.needs_key = False
        self.draining = False  # set by a signal: what was accepted is answered, and endless streams end
        self._embedders: dict[str, TextEmbedder] = {}

    def find(self, name: str | None, ability: str | None = None) -> Served:
        """Return a run by its name, or the first one; `Refused` (404) if there is none.

        Args:
            name: its name, or None.
            ability: an attribute of its `Task` that must be true: `translates`, `writes`, `embeds` or `classifies`.
        """
        fitting = [served for served in self.runs.values() if ability is None or getattr(served.task, ability)]
        for served in fitting:
            if name in (None, served.name):
                return served
        names = ", ".join(served.name for served in fitting) or "none"
        raise Refused(404, f"There is no model {name!r} for this; there is: {names}.")

    @property
    def translators(self) -> list[Served]:
        """The runs that translate."""
        return [served for served in self.runs.values() if served.task.translates]

    def for_languages(self, source: str | None, target: str) -> Served:
        """Return the translator from one language to another; `Refused` (400) if there is none."""
        for served in self.translators:
            own_source, own_target = served.languages
            if own_target == target.lower() and (source or "auto").lower() in ("auto", own_source):
                return served
        pairs = ", ".join("-".join(served.languages) for served in self.translators) or "none"
        raise Refused(400, f"There is no translation from {source or 'auto'} to {target}; there is: {pairs}.")

    def embedder(self, served: Served) -> TextEmbedder:
        """Return what computes vectors with the model of a run."""
        if served.name not in self._embedders:
            self._embedders[served.name] = TextEmbedder.for_model(served.predictor.model, served.run)
        return self._embedders[served.name]

    def embed(self, served: Served, texts: Sequence[str]) -> list[concurrent.futures.Future]:
        """Queue texts for their vectors, all or none."""
        embedder = self.embedder(served)

        def compute(group):
            return list(embedder.embed(group))

        return all_accepted(functools.partial(served.engine.compute, "embed", text, compute) for text in texts)

    def classify(self, served: Served, texts: Sequence[str]) -> list[concurrent.futures.Future]:
        """Queue texts for the probabilities of their classes (C,), all or none."""

        def compute(group):
            return list(served.predictor.probabilities(group, discard_warning))

        return all_accepted(functools.partial(served.engine.compute, "classify", text, compute) for text in texts)

    def pieces(self, served: Served, text: str) -> Pieces:
        """Return the pieces of a text that a run answers one by one: a translator's lines and sentences."""
        if served.task.translates:
            return served.predictor.pieces(text)
        count, context = (
            len(served.run.tokenizer.encode(text)) + served.predictor.starts,
            served.predictor.model.max_length,
        )
        long = f"The prompt has {count} tokens, more than the model's context of {context}: only its end is read."
        return Pieces([text], [], [long] if count > context else [])

    def translate(self, served: Served, pieces: Sequence[Pieces]) -> list[concurrent.futures.Future]:
        """Queue the pieces of texts for their translations by the run's settings, all or none."""
        return all_accepted(functools.partial(served.engine.translate, text) for each in pieces for text in each.texts)

    def candidates(
        self, served: Served, pieces: Sequence[Pieces], first: bool = False, further: bool = False, number: int = 1,
        **options: Any,
    ) -> list[concurrent.futures.Future]:  # fmt: skip
        """Queue the pieces of texts for their translations by other settings, all or none.

        The result of a piece is the list of its `ScoredText`s, or the `first` one. Samples depend on the number of a
        piece in its request, that of the first one being `number`, not on what else is computed. `further`: see
        `Engine.translate`.
        """

        def compute(numbered):
            numbers, texts = zip(*numbered, strict=True)
            results = served.predictor.translate_pieces(texts, discard_warning, True, numbers, **options)
            return [candidates[0] for candidates in results] if first else results

        key = first, *sorted(options.items())
        texts = (text for each in pieces for text in each.texts)
        return all_accepted(
            (functools.partial(served.engine.compute, "candidates", numbered, compute, *key)
             for numbered in enumerate(texts, start=number)), further,
        )  # fmt: skip

    def alternatives(self, served: Served, pieces: Sequence[Pieces], count: int) -> list[concurrent.futures.Future]:
        """Queue the pieces of an accepted request for `count` translations each, by a beam of that width at least."""
        width = max(count, served.predictor.decode.beam_size)
        return self.candidates(served, pieces, further=True, beam_size=width, n_best=count, sample=False)

    def generate(self, served: Served, prompts: Sequence[str], **options: Any) -> list[concurrent.futures.Future]:
        """Queue prompts for their continuations, all or none; results are lists of `Continuation`."""

        def compute(numbered):
            numbers, group = zip(*numbered, strict=True)
            return served.predictor.continuations(group, numbers=numbers, **options)

        key = sorted(options.items())
        return all_accepted(
            functools.partial(served.engine.compute, "generate", numbered, compute, *key)
            for numbered in enumerate(prompts, start=1)
        )

    def stream(
        self, served: Served, text: str, send: Callable[[str], Any], number: int = 1, **options: Any
    ) -> concurrent.futures.Future:
        """Queue a text whose result is passed to `send` piece by piece, from another thread.

        A result that is not None has the whole text; its end may not have been passed on. Engines that write no text
        piece by piece pass on nothing. `number` is that of the text in its request, from 1: a sample depends on it, and
        texts after the first are accepted even if the queue is full.
        """
        engine, further = served.engine, number > 1
        if engine.in_slots and not options and served.predictor.decode.beam_size == 1:
            follow = following(served.predictor.target_tokenizer, send)
            return accepted(lambda: engine.translate(text, follow, further))
        if not hasattr(served.predictor, "stream_tokens"):
            return self.candidates(served, [Pieces([text], [], [])], True, further, number, **options)[0]

        ended = threading.Event()

        def compute(texts):
            for piece in served.predictor.stream_tokens(texts[0], number=number, **options):
                if ended.is_set():  # the client has left
                    break
                send(piece)
            return [None]

        future = accepted(lambda: engine.compute("stream", text, compute, id(send), further=further))
        future.add_done_callback(lambda _: ended.set())
        return future


def all_accepted(
    submits: Iterable[Callable[..., concurrent.futures.Future]], further: bool = False
) -> list[concurrent.futures.Future]:
    """Return the futures of the parts of a request; if one is refused, the others are cancelled (see `accepted`).

    Args:
        submits: called with `further`, which is true of all parts but the first.
        further: whether even the first one is of a request that was accepted.
    """
    with all_or_none() as futures:
        for submit in submits:
            futures.append(accepted(functools.partial(submit, further=further or bool(futures))))
    return futures


@contextlib.contextmanager
def all_or_none() -> Iterator[list[concurrent.futures.Future]]:
    """Collect the futures of a request; if a later part of it is refused, cancel them."""
    futures: list[concurrent.futures.Future] = []
    try:
        yield futures
    except Refused:
        for future in futures:
            future.cancel()
        raise


def accepted(submit: Callable[[], concurrent.futures.Future]) -> concurrent.futures.Future:
    """Return the future of a request; `Refused` (429) if the queue is full, or (422) if the text makes no sense."""
    try:
        return submit()
    except Busy:
        raise Refused(429, "Too many requests are waiting.", Retry_After=RETRY_AFTER) from None
    except InputError as error:
        raise Refused(422, str(error)) from error
