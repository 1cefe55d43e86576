"""The queue between requests and models: merges what arrives at the same time, and decodes it together.

Requests come from an event loop; threads of an `Engine` answer them. Sentences to translate with the run's own settings
enter the slots of a `SlotSearch` while others are decoded. Everything else is grouped: texts that wait for the same
method with the same options are computed in one call.
"""

import collections
import concurrent.futures
import contextlib
import functools
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from heedful import backend
from heedful.core.errors import InputError
from heedful.decoding.slot_search import SOURCE_LENGTH, SlotSearch
from heedful.inference.predictor import ScoredText, discard_warning
from heedful.inference.token_stream import GrowingText

STEPS, STREAM_STEPS = 8, 2  # decode steps between two checks of the queue; fewer for streams
ENOUGH_SHARE = 4  # with others waiting, a segment ends when a quarter of the slots is finished
FEW = 4  # slots for the sentences of a server with little to do: a step takes less time than with all slots
GROUP = 64  # texts of a group
GATHER_SECONDS = 0.002  # seconds that a group waits for more of its kind


class Busy(Exception):
    """The queue is full."""


@dataclass(eq=False)
class Sentence:
    """A source to translate in a slot."""

    ids: list[int]
    future: concurrent.futures.Future = field(default_factory=concurrent.futures.Future)
    follow: Callable[[list[int]], Any] | None = None
    """Called from an engine's thread with the ids written so far, while it is decoded."""


@dataclass(eq=False)
class Job:
    """A text for a method of a predictor with some options."""

    text: Any
    key: Hashable
    compute: Callable[[Sequence[Any]], Sequence[Any]]
    """Computes the results of all texts of a group; the same for every job of a key."""
    future: concurrent.futures.Future = field(default_factory=concurrent.futures.Future)


class Engine:
    """Answers requests for one run, with some threads of its own.

    Args:
        predictor: the `Predictor` of the run.
        limit: texts that may wait or be computed at a time; `Busy` beyond. The further texts of a request whose first
            one was accepted are accepted too, so that a long text has a chance.
        slots: sentences decoded together by each thread.
        in_slots: whether the predictor is a `Translator` of our own engine, whose sentences can enter slots, unless
            they are sampled, several are wanted, or each begins with a token of its own.
        threads: number of threads of other predictors; with slots, one for each device, or core of a CPU.
    """

    def __init__(self, predictor: Any, limit: int = 1024, slots: int = 48, in_slots: bool = False, threads: int = 1):
        self.predictor, self.limit, self.slots = predictor, limit, slots
        self.in_slots = in_slots and _fits_slots(predictor)
        self.pending = 0  # texts that were accepted and not answered yet
        self._sentences: collections.deque[Sentence] = collections.deque()
        self._jobs: collections.deque[Job] = collections.deque()
        self._changed, self._stopped = threading.Condition(), False
        self._threads = [
            threading.Thread(target=self._work, args=(number,), name=f"heedful-engine-{number}", daemon=True)
            for number in range(backend.workers() if in_slots else threads)
        ]
        self._warm = threading.Barrier(len(self._threads) + 1)  # all threads, and the one that starts them

    def start(self) -> None:
        """Compile the programs that most requests need, and start the threads."""
        if self.in_slots:
            self._warm_up(self._new_searches())
        for thread in self._threads:
            thread.start()
        self._warm.wait()

    def _warm_up(self, searches):
        try:
            for search in searches:
                search.warm_up()
        except BaseException:
            self._warm.abort()
            raise

    def stop(self, seconds: float | None = None) -> None:
        """Stop the threads after what they are computing, but wait at most `seconds`; what waits is cancelled."""
        with self._changed:
            self._stopped = True
            waiting = [one.future for one in self._sentences] + [one.future for one in self._jobs]
            self._changed.notify_all()
        for future in waiting:
            future.cancel()
        end = time.monotonic() + (seconds or 0.0)
        for thread in self._threads:
            thread.join(None if seconds is None else max(0.0, end - time.monotonic()))

    def translate(
        self, text: str, follow: Callable[[list[int]], Any] | None = None, further: bool = False
    ) -> concurrent.futures.Future:
        """Queue a text to translate with the run's settings; its result is a `ScoredText`.

        Args:
            text: a sentence.
            follow: called with the ids written so far; only for greedy search.
            further: whether it is of a request that was accepted.
        """
        ids = self.predictor.read([text], warn=discard_warning)[0] if self.in_slots else []
        if not ids or len(ids) + 1 > 2 * SOURCE_LENGTH:
            return self.compute("translate", text, self._translate_texts, further=further)
        sentence = Sentence(ids, follow=follow)
        self._accept(sentence, self._sentences, further)
        return sentence.future

    def compute(
        self, method: str, text: Any, compute: Callable[[Sequence[Any]], Sequence[Any]], *options: Hashable,
        further: bool = False,
    ) -> concurrent.futures.Future:  # fmt: skip
        """Queue a text for `compute`, which is called with all texts that wait for the same method and options."""
        job = Job(text, (method, *options), compute)
        self._accept(job, self._jobs, further)
        return job.future

    def _accept(self, item, queue, further):
        with self._changed:
            if self._stopped or (self.pending >= self.limit and not further):
                raise Busy
            self.pending += 1
            item.future.add_done_callback(self._answered)
            queue.append(item)
            self._changed.notify()

    @property
    def is_alive(self) -> bool:
        """Whether all threads run."""
        return all(thread.is_alive() for thread in self._threads)

    @property
    def has_stopped(self) -> bool:
        """Whether no thread runs."""
        return not any(thread.is_alive() for thread in self._threads)

    def _answered(self, future):
        with self._changed:
            self.pending -= 1

    def _new_searches(self) -> list[SlotSearch]:
        """Return the slots of a thread: a few, all, and a few for long sources, which are rare."""
        predictor = self.predictor
        new = functools.partial(
            SlotSearch, predictor.decoding_model, predictor.decode, predictor.target_tokenizer,
            predictor.search_with().programs,
        )  # fmt: skip
        few = min(FEW, self.slots)
        return [new(few, SOURCE_LENGTH), new(self.slots, SOURCE_LENGTH), new(few, 2 * SOURCE_LENGTH)]

    def _work(self, number):
        try:
            backend.use_device(number)
            searches = self._new_searches() if self.in_slots else []
            if 0 < number < backend.inference_devices():  # each device needs programs of its own
                self._warm_up(searches)
        except BaseException:
            self._warm.abort()  # `start` must not wait for this thread
            raise
        self._warm.wait()
        while True:
            with self._changed:
                while not (self._stopped or self._sentences or self._jobs or _active(searches)):
                    self._changed.wait()
                if self._stopped and not (self._sentences or self._jobs or _active(searches)):
                    return
                admitted = self._take_sentences(searches)
                group = self._take_group()
            for search, sentences in zip(searches, admitted, strict=True):
                self._run_slots(search, sentences)
            if group:
                self._run_group(group)

    def _take_sentences(self, searches):
        """Return the waiting sentences that fit into free slots, for each search; a thread takes its share."""
        admitted: list[list[Sentence]] = [[] for _ in searches]
        share = -(-len(self._sentences) // len(self._threads))
        if not share:
            return admitted
        few, many, long = range(3)
        is_idle = searches[many].free == searches[many].slots
        usual = few if is_idle and share <= searches[few].free else many
        passed_over = []
        for _ in range(share):
            sentence = self._sentences.popleft()
            number = long if len(sentence.ids) + 1 > SOURCE_LENGTH else usual
            if len(admitted[number]) == searches[number].free:
                passed_over.append(sentence)
            elif not sentence.future.cancelled():
                admitted[number].append(sentence)
        self._sentences.extendleft(reversed(passed_over))
        return admitted

    def _run_slots(self, search, admitted):
        """Admit sentences, advance the slots by a segment, and answer what is finished."""
        try:
            search.remove([s for s in search.tickets if s is not None and s.future.cancelled()])
            search.admit({sentence: sentence.ids for sentence in admitted})
            followed = [s for s in search.tickets if s is not None and s.follow]
            enough = max(1, search.slots // ENOUGH_SHARE) if self._sentences else search.slots
            for ticket, candidates in search.run(STREAM_STEPS if followed else STEPS, enough):
                self._finish(ticket, candidates)
            if followed := [s for s in followed if s in search.tickets]:
                written = search.written()
                for sentence in followed:
                    sentence.follow(written[sentence])
        except BaseException as error:  # noqa: BLE001 - the thread must live, and the requests must learn of it
            for sentence in {*admitted, *filter(None, search.tickets)}:
                _fail(sentence.future, error)
            search.forget()

    def _finish(self, sentence, candidates):
        if candidates is None:  # it does not fit into a slot
            job = Job(sentence.ids, ("ids",), self._translate_ids, sentence.future)
            with self._changed:
                self._jobs.append(job)
                self._changed.notify()
            return
        best = candidates[0]
        _answer(sentence.future, ScoredText(self.predictor.target_tokenizer.decode(best.ids), best.score))

    def _translate_texts(self, texts):
        return [candidates[0] for candidates in self.predictor.translate_pieces(texts, discard_warning)]

    def _translate_ids(self, sources):
        candidates = self.predictor.search_with(scored=True)(sources)
        return [ScoredText(self.predictor.target_tokenizer.decode(c[0].ids), c[0].score) for c in candidates]

    def _take_group(self):
        """Return the jobs at the head of the queue that can be computed together; a thread takes its share."""
        if self._jobs and not self._sentences:  # nothing else to do: a moment later there may be more of its kind
            self._changed.wait(GATHER_SECONDS)
        group: list[Job] = []
        share = min(GROUP, -(-len(self._jobs) // len(self._threads)))
        while self._jobs and len(group) < share and (not group or self._jobs[0].key == group[0].key):
            job = self._jobs.popleft()
            if not job.future.cancelled():
                group.append(job)
        if self._jobs or self._sentences:
            self._changed.notify()  # another thread may sleep
        return group

    def _run_group(self, group):
        try:
            for job, result in zip(group, group[0].compute([job.text for job in group]), strict=True):
                _answer(job.future, result)
        except InputError as error:
            self._run_one_by_one(group, error)
        except BaseException as error:  # noqa: BLE001 - the thread must live, and the requests must learn of it
            for job in group:
                _fail(job.future, error)

    def _run_one_by_one(self, group, error):
        """Find the text that an error is about; the others are answered."""
        if len(group) == 1:
            _fail(group[0].future, error)
            return
        for job in group:
            self._run_group([job])

    def drained(self, seconds: float) -> bool:
        """Wait until everything is answered, at most `seconds`; return whether it is."""
        end = time.monotonic() + seconds
        while self.pending and time.monotonic() < end:
            time.sleep(0.02)
        return not self.pending


def _fits_slots(predictor) -> bool:
    """Return whether the sentences of a `Translator` may enter slots."""
    decode = predictor.decode
    return not decode.sample and decode.n_best == 1 and not predictor.target_tokenizer.prefix_ids


def _active(searches) -> bool:
    return any(ticket is not None for search in searches for ticket in search.tickets)


def _answer(future, result):
    with contextlib.suppress(concurrent.futures.InvalidStateError):  # the client has left
        future.set_result(result)


def _fail(future, error):
    if not isinstance(error, Exception):  # the event loop would not answer such a request
        error = RuntimeError(f"{type(error).__name__}: {error}")
    with contextlib.suppress(concurrent.futures.InvalidStateError):
        future.set_exception(error)


def following(tokenizer: Any, send: Callable[[str], Any]) -> Callable[[list[int]], Any]:
    """Return a function that receives the ids written so far, and passes on the text that is new."""
    growing = GrowingText(tokenizer)

    def follow(ids):
        if new := growing.added(ids):
            send(new)

    return follow
