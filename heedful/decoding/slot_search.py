"""A search that never ends: sentences enter free slots while others are decoded, as a server needs.

`BatchSearch` knows all of its sources at the beginning; here they arrive one by one. The loop of `search.py` runs in
segments of a few steps. Between two segments, finished results are taken out and new sentences are admitted.

Axes: A admitted sentences, B slots, S source length, C capacity in tokens, P results of a sentence.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from keras import ops
from keras.tree import map_structure

from heedful import backend
from heedful.backend import Tensor
from heedful.backend.program_cache import ProgramCache
from heedful.config import DecodeConfig
from heedful.core.special_tokens import START_ID
from heedful.data.examples import source_ids
from heedful.data.ragged import Ragged
from heedful.data.tokenizer import Tokenizer
from heedful.decoding.batch_search import BatchSearch
from heedful.decoding.candidates import Candidate, until_end
from heedful.decoding.search import LoopState, Setup, advance, first_state, new_setup, search_results, unfinished

SOURCE_LENGTH = 32  # tokens of a source, the end token included, in a slot
EXTRA = 16  # tokens that a result may have beyond the length of a source
ADMITTED = (4, 16)  # numbers of sentences for which admission is compiled


class Finished(NamedTuple):
    """The result of a sentence."""

    ticket: Any
    candidates: list[Candidate] | None
    """Best first; None if it needs more tokens than fit into a slot."""


class SlotSearch:
    """Decodes sentences that arrive at any time. One thread uses it.

    Args:
        model, decode, tokenizer, programs: as for `BatchSearch`. Sampling is not supported, because samples depend on
            numbers that a sentence has in its request.
        slots: number of sentences decoded together, B; None: `decode.batch_size`.
        source_length: tokens of a source, the end token included, that fits into a slot, S.
    """

    def __init__(
        self, model: Any, decode: DecodeConfig, tokenizer: Tokenizer, programs: ProgramCache | None = None,
        slots: int | None = None, source_length: int = SOURCE_LENGTH,
    ):  # fmt: skip
        decode = dataclasses.replace(decode, batch_size=slots or decode.batch_size)
        self.search = BatchSearch(model, decode, tokenizer, programs=programs)
        self.model, self.slots, self.source_length = model, decode.batch_size, min(source_length, model.max_length)
        self.capacity = min(self.source_length + EXTRA, model.max_length)
        self.tickets: list[Any] = [None] * self.slots  # of the sentences in the slots
        self._limits, self._min_lengths = np.zeros(self.slots, np.int32), np.zeros(self.slots + 1, np.int32)
        self._state: Any = None

    @property
    def free(self) -> int:
        """The number of free slots."""
        return self.tickets.count(None)

    def admit(self, sentences: Mapping[Any, list[int]]) -> None:
        """Give free slots to sentences, by ticket; there must be as many free slots, and each source must fit.

        Args:
            sentences: source ids, without end tokens, by ticket.
        """
        if sentences and self._state is None:
            self._state = self._program("begin")(np.zeros((self.slots, self.source_length), np.int32))
        by_length = sorted(sentences.items(), key=lambda item: len(item[1]))
        for start in range(0, len(by_length), ADMITTED[-1]):
            self._admit_part(dict(by_length[start : start + ADMITTED[-1]]))

    def _admit_part(self, sentences: Mapping[Any, list[int]]) -> None:
        """Admit up to `ADMITTED[-1]` sentences of similar length."""
        sources, decode = list(sentences.values()), self.search.decode
        chosen = [slot for slot, ticket in enumerate(self.tickets) if ticket is None][: len(sources)]
        for slot, (ticket, source) in zip(chosen, sentences.items(), strict=True):
            self.tickets[slot], self._limits[slot] = ticket, self.search.length_limit(len(source))
            min_length = max(decode.min_length, np.ceil(decode.min_ratio * len(source)))
            self._min_lengths[slot] = min(min_length, self._limits[slot])
        count = next(size for size in ADMITTED if size >= len(sources))
        length = next(length for length in self._lengths() if length > max(map(len, sources)))
        rows = np.arange(count) % len(sources)  # filled up with the same sentences, which are written twice
        places = np.array(chosen, np.int32)[rows]
        inputs = source_ids(Ragged.of(sources), rows, length)
        self._state = self._program("admit", (count, length))(self._state, inputs, places)

    def forget(self) -> None:
        """Give up all sentences after a failure, and the state, whose buffers a program may have consumed."""
        self.tickets, self._state = [None] * self.slots, None

    def remove(self, tickets: Sequence[Any]) -> None:
        """Free the slots of sentences that no one waits for; their results are dropped."""
        for slot, ticket in enumerate(self.tickets):
            if ticket is not None and ticket in tickets:
                self.tickets[slot] = None

    def run(self, steps: int, enough: int) -> list[Finished]:
        """Decode for up to `steps` steps, or until `enough` sentences are finished; return the finished ones."""
        if all(ticket is None for ticket in self.tickets):
            return []
        active = np.array([ticket is not None for ticket in self.tickets])
        self._state, sentence, results_of = self._program("segment")(
            self._state,
            self._limits,
            self._min_lengths,
            active,
            np.int32(steps),
            np.int32(enough),
            self.search._numbers(),
        )
        sentence = np.asarray(backend.to_numpy(sentence))
        done = np.flatnonzero(active & (sentence >= self.slots))
        if not len(done):
            return []
        tokens, scores, complete = (np.asarray(backend.to_numpy(array)) for array in results_of)
        results = []
        for slot in done:
            pairs = zip(tokens[slot], scores[slot], strict=True)
            candidates = [Candidate(until_end(ids), float(score)) for ids, score in pairs]
            results.append(Finished(self.tickets[slot], candidates if complete[slot] else None))
            self.tickets[slot] = None
        return results

    def written(self) -> dict[Any, list[int]]:
        """Return what each sentence's best hypothesis has written so far, by ticket; greedy search only."""
        tokens, age = (
            np.asarray(backend.to_numpy(array)) for array in (self._state.hypotheses.tokens, self._state.age)
        )
        return {
            ticket: until_end(tokens[slot, 0][: age[slot]])
            for slot, ticket in enumerate(self.tickets)
            if ticket is not None
        }

    def warm_up(self) -> None:
        """Compile all programs."""
        for count, length in itertools.product(ADMITTED, self._lengths()):
            count = min(count, self.slots)
            self.admit({("warm up", number): [START_ID] * (length - 1) for number in range(count)})
            self.run(1, self.slots)
            self.tickets = [None] * self.slots

    def _lengths(self) -> list[int]:
        """Return the lengths of sources for which admission is compiled, shortest first."""
        return sorted({(self.source_length + 1) // 2, self.source_length})

    def _program(self, kind: str, size: tuple[int, ...] = ()) -> Callable[..., Any]:
        """Return a compiled program: `begin`, `admit` (`size`: sentences and their length), or `segment`."""
        key = "slots", kind, size, self.slots, self.source_length, self.search.decode, self.model
        function = getattr(self, f"_{kind}")
        return self.search.programs.get(
            key, lambda: backend.compiled(function, self.model, loop=kind == "segment", overwrite=kind != "begin")
        )

    def _setup(
        self,
        memory: Any,
        limits: Tensor | None = None,
        min_lengths: Tensor | None = None,
        numbers: Tensor | None = None,
    ) -> Setup:
        limits = ops.zeros((self.slots,), "int32") if limits is None else limits
        numbers = self.search._numbers() if numbers is None else numbers  # unused, where no token is chosen
        given = {"min_lengths": min_lengths, "randoms": None, "numbers": numbers}
        strategy, constraints = self.search._strategy(given), self.search._constraints(given)
        first = ops.full((self.slots,), START_ID, "int32")
        return new_setup(self.model, memory, first, limits, strategy, constraints, capacity=self.capacity, ring=True)

    def _begin(self, source: Tensor) -> LoopState:
        """Return a state without sentences; `source` is nothing but padding."""
        setup = self._setup(self.model.prefill(source))
        return first_state(setup)._replace(sentence=ops.full((self.slots,), self.slots, "int32"))

    def _admit(self, state: LoopState, source: Tensor, places: Tensor) -> LoopState:
        """Write new sentences (A, S) into the slots `places` (A,)."""
        places = ops.convert_to_tensor(places)
        memory = self.model.prefill(source)
        memory = map_structure(lambda new, old: _padded(new, old.shape), memory, state.memory)
        setup = self._setup(state.memory)
        fresh = setup.fresh._replace(last=ops.full_like(setup.fresh.last, START_ID))

        def written(old: Tensor, new: Tensor) -> Tensor:
            """Return `old`, in which the slots have the rows of `new`; a sentence may have several rows."""
            each = old.shape[0] // self.slots
            rows = ops.reshape(places[:, None] * each + ops.arange(each, dtype="int32"), (-1, 1))
            return ops.scatter_update(old, rows, ops.cast(new, old.dtype))

        def fresh_rows(old: Tensor, new: Tensor) -> Tensor:
            return written(old, ops.repeat(new, places.shape[0], axis=0))

        return state._replace(
            sentence=ops.scatter_update(state.sentence, places[:, None], places),
            age=ops.scatter_update(state.age, places[:, None], ops.zeros_like(places)),
            memory=map_structure(written, state.memory, memory),
            hypotheses=map_structure(fresh_rows, state.hypotheses, fresh),
        )

    def _segment(
        self,
        state: LoopState,
        limits: Tensor,
        min_lengths: Tensor,
        active: Tensor,
        steps: Tensor,
        enough: Tensor,
        numbers: Tensor,
    ) -> tuple[LoopState, Tensor, Any]:
        """Advance all slots; return the state, the sentence of each slot (B,), and the results (B, P, C)."""
        limits, min_lengths, active, numbers = (
            ops.convert_to_tensor(array) for array in (limits, min_lengths, active, numbers)
        )
        setup = self._setup(state.memory, limits, min_lengths, numbers)
        state = state._replace(sentence=ops.where(active, state.sentence, self.slots))
        end, begun = state.clock + steps, ops.sum(ops.cast(active, "int32"))

        def goes_on(state: LoopState) -> Tensor:
            finished = begun - ops.sum(ops.cast(state.sentence < self.slots, "int32"))
            return ops.logical_and(ops.logical_and(unfinished(setup, state), state.clock < end), finished < enough)

        state = ops.while_loop(goes_on, lambda state: (advance(setup, state),), (state,))[0]
        return state, state.sentence, search_results(setup, state)


def _padded(array: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return an array, padded with zeros along all axes but the first to a larger shape."""
    missing = [(0, wanted - size) for size, wanted in zip(array.shape[1:], shape[1:], strict=True)]
    return ops.pad(array, [(0, 0), *missing]) if any(after for _, after in missing) else array
