"""Batched search: sorts sources by length, decodes them in few shapes, and restores their order.

Axes: W sentences of one call of the search, S source length, K hypotheses, P results.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from heedful import backend
from heedful.backend import Tensor
from heedful.backend.program_cache import ProgramCache
from heedful.config import DecodeConfig
from heedful.core.errors import InputError
from heedful.core.special_tokens import END_ID, PAD_ID, START_ID
from heedful.data.examples import source_ids
from heedful.data.lengths import next_power_of_two, round_up, run_by_length
from heedful.data.ragged import Ragged
from heedful.data.tokenizer import Tokenizer
from heedful.decoding.beam_search import BeamSearch
from heedful.decoding.candidates import Candidate, forbidden_ids, require_room, until_end
from heedful.decoding.constraints import TokenConstraints
from heedful.decoding.search import LoopState, Setup, advance, first_state, new_setup, search, unfinished
from heedful.decoding.strategies import Greedy, Number, Sampling, from_settings

SENTENCES_PER_SLOT = 4  # maximum sentences per slot in one call: with more, slots are idle less often at its end
MIN_LENGTH_RATIO = 2 / 3  # minimum ratio of shortest to longest source in a call, unless few sentences are left
MIN_NUMBER = 1e-6  # a lower temperature, top_p or min_p draws the same tokens, and may be 0 in float32
VARYING = [one for one in dataclasses.fields(DecodeConfig) if one.metadata["varies"]]  # inputs of a compiled search
# Settings that compiled searches do not depend on, or only through their capacity.
FREE = ("seed", "min_length", "min_ratio", "max_length", "max_ratio", "max_extra", "forbidden", "precision")
LENGTH_STEP = 4  # source lengths are rounded up to multiples of this, capacities to multiples of twice this
ACCELERATED_LENGTH_STEP = 16  # on an accelerator, where compiling a search takes longer than some more padding


class BatchSearch:
    """Searches for the best continuations of many sources. Threads may share it.

    Args:
        model: an encoder-decoder model, or an `Ensemble` of several, in the precision of `decode`; `PromptSearch` is
            for language models.
        decode: the settings.
        tokenizer: the target tokenizer, for the forbidden tokens, the vocabulary size and what targets begin with.
        scored: whether greedy search computes scores too; the other strategies always do.
        programs: compiled programs to share with other searches of the same models; None: nothing is shared.
        brief: whether the search runs only once or twice; it then compiles few programs, and those fast.

    Raises:
        InputError: the beam is not smaller than the vocabulary, or a forbidden token is unknown.
    """

    def __init__(
        self, model: Any, decode: DecodeConfig, tokenizer: Tokenizer, scored: bool = False,
        programs: ProgramCache | None = None, brief: bool = False,
    ) -> None:  # fmt: skip
        self.model, self.decode, self.scored, self.brief = model, decode, scored, brief
        self.forbidden, self.prefix = forbidden_ids(decode, tokenizer), list(tokenizer.prefix_ids)
        self.programs = ProgramCache() if programs is None else programs

    def __call__(
        self, sources: Sequence[list[int]], numbers: Sequence[int] | None = None,
        prefixes: Sequence[list[int]] | None = None, limits: Sequence[int] | None = None,
    ) -> list[list[Candidate]]:  # fmt: skip
        """Continue every source.

        Args:
            sources: lists of ids, without end tokens, none empty.
            numbers: sentence numbers, which determine the random numbers of sampling; by default 0, 1, ...
            prefixes: lists of ids that the results must begin with; by default the `prefix_ids` of the tokenizer.
            limits: maximum length of each result, if less than `length_limit`.

        Returns:
            For each source its `n_best` candidates, best first.

        Raises:
            InputError: a prefix is as long as its result may be.
        """
        queries = [
            self._query(
                ids,
                index if numbers is None else numbers[index],
                self.prefix if prefixes is None else prefixes[index],
                limits[index] if limits else None,
            )
            for index, ids in enumerate(sources)
        ]
        for query in queries:
            require_room(query.prefix, query.limit, None if numbers is None else query.number, prefixes is not None)
        return self._run_all(queries)

    def stream(self, source: list[int], number: int = 0, prefix: Sequence[int] | None = None) -> Iterator[int]:
        """Yield the ids of one result, without the end token, each as soon as it is chosen.

        Args:
            source, number, prefix: see `__call__`; for one source.

        Raises:
            InputError: the settings ask for a beam or several results, whose tokens are not final before the end.
        """
        if self.decode.beam_size > 1 or self.decode.n_best > 1:
            raise InputError("A beam, or several results, cannot be streamed: set beam_size = 1 and n_best = 1.")
        query = self._query(source, number, self.prefix if prefix is None else list(prefix))
        require_room(query.prefix, query.limit, given=prefix is not None)
        arguments, capacity = self._arguments([query], slots=1)
        begin = self._program("begin", capacity, arguments)
        step = self._program("advance", capacity, arguments)
        state = begin(*arguments.values())
        for _ in range(query.limit):
            state, token, goes_on = step(state, *arguments.values())
            token = int(backend.to_numpy(token))
            if token in (END_ID, PAD_ID):  # padding ends a text too, see `until_end`
                return
            yield token
            if not backend.to_numpy(goes_on):
                return

    def length_limit(self, length: int) -> int:
        """Return the maximum result length for a source of `length` tokens."""
        return self.decode.length_limit(length, self.model.max_length)

    def _query(self, ids: list[int], number: int, prefix: list[int], limit: int | None = None) -> "_Query":
        length_limit = self.length_limit(len(ids))
        return _Query(ids, number, prefix, length_limit if limit is None else min(length_limit, limit))

    def _run_all(self, queries: "Sequence[_Query]") -> list[list[Candidate]]:
        """Return the candidates of each query."""
        workers, slots = 1 if self.brief else backend.workers(), self.decode.batch_size
        # The parts do not depend on the number of devices: in bfloat16 a result may depend on its part.
        parts = 1 if self.brief else backend.parallel_programs()
        max_size = min(SENTENCES_PER_SLOT * slots, math.ceil(len(queries) / parts))
        lengths = [len(query.source) for query in queries]
        run = functools.partial(self._run, queries)
        min_size = max_size if self.brief else slots
        return run_by_length(lengths, lambda order: _parts(order, lengths, max_size, min_size), run, workers)

    def _run(self, queries: "Sequence[_Query]", chosen: Sequence[int]) -> list[list[Candidate]]:
        """Return the candidates of the chosen queries."""
        queries = [queries[index] for index in chosen]
        arguments, capacity = self._arguments(queries, SENTENCES_PER_SLOT * self.decode.batch_size)
        results = self._program("search", capacity, arguments)(*arguments.values())
        tokens, scores, _ = (np.asarray(backend.to_numpy(array)) for array in results)
        return [
            [Candidate(until_end(ids), float(score)) for ids, score in zip(tokens[row], scores[row], strict=True)]
            for row in range(len(queries))
        ]

    def _arguments(self, queries: "Sequence[_Query]", slots: int) -> tuple[dict[str, Any], int]:
        """Return the arguments of the compiled search by name, and its capacity."""
        count = next_power_of_two(len(queries), slots)
        lengths = np.array([len(query.source) for query in queries])
        rows = np.where(np.arange(count) < len(queries), np.arange(count), -1)
        limits = padded([query.limit for query in queries], count)
        source, first = self._read(queries, rows)
        arguments = {"source": source, "first": first, "limits": limits}
        min_lengths = np.maximum(self.decode.min_length, np.ceil(self.decode.min_ratio * lengths))
        if min_lengths.any():
            arguments["min_lengths"] = padded(np.minimum(min_lengths, limits[: len(queries)]), count + 1)
        prefix = max(len(query.prefix) for query in queries)
        capacity = min(round_up(self._capacity(queries, source.shape[1]), 2 * length_step()), self.model.max_length)
        if prefix:
            prefixes = Ragged.of([query.prefix for query in queries])
            arguments["prefix"] = prefixes.padded(np.append(rows, -1), round_up(prefix, length_step()))
        if self.decode.sample:
            arguments["randoms"] = self._randoms(queries, count, capacity)
        if any(self._varied()):
            arguments["numbers"] = self._numbers()
        return arguments, capacity

    def _varied(self) -> list[bool]:
        """Return for each of `VARYING` whether it is an input of this search."""
        used = self.decode.in_use(self.scored)
        return [one.name in used and _is_input(self.decode, one) for one in VARYING]

    def _numbers(self) -> np.ndarray:
        """Return the settings `VARYING` and their inverses as an input of the program: (2, N)."""
        values = np.array([max(getattr(self.decode, one.name), MIN_NUMBER) for one in VARYING], np.float32)
        return np.stack([values, 1 / values])

    def _read(self, queries: "Sequence[_Query]", rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the argument of `prefill` (W, S), and the first input token of each sentence (W,)."""
        longest = round_up(max(len(query.source) for query in queries) + 1, length_step(), self.model.max_length)
        sources = Ragged.of([query.source for query in queries])
        return source_ids(sources, rows, longest), np.full(len(rows), START_ID, np.int32)

    def _capacity(self, queries: "Sequence[_Query]", read: int) -> int:
        """Return the room that the results of queries need, whose sources are padded to `read` tokens.

        Without limits of their own, all queries of a shape get that of the longest source of the shape.
        """
        limit = max(query.limit for query in queries)
        longest = max(len(query.source) for query in queries)
        return max(limit, self.length_limit(read - 1)) if limit == self.length_limit(longest) else limit

    def _program(self, kind: str, capacity: int, arguments: Mapping[str, Any]) -> Callable[..., Any]:
        """Return a compiled program: `search`, or for streaming `begin` and `advance`, one step."""
        names, shapes = tuple(arguments), tuple(array.shape for array in arguments.values())
        settings = _program_settings(self.decode), self.forbidden, self.scored, self.brief
        key = kind, self.model, settings, capacity, names, shapes

        def create() -> Callable[..., Any]:
            functions = {"search": self._search, "begin": self._begin, "advance": self._advance}
            function = functools.partial(functions[kind], capacity, names)
            return backend.compiled(function, self.model, loop=True, brief=self.brief)

        return self.programs.get(key, create)

    def _search(self, capacity: int, names: tuple[str, ...], *values: Any) -> tuple[Any, ...]:
        given = dict(zip(names, values, strict=True))
        return tuple(search(self._setup(self.model.prefill(given["source"]), capacity, given)))

    def _begin(self, capacity: int, names: tuple[str, ...], *values: Any) -> LoopState:
        given = dict(zip(names, values, strict=True))
        return first_state(self._setup(self.model.prefill(given["source"]), capacity, given))

    def _advance(
        self, capacity: int, names: tuple[str, ...], state: LoopState, *values: Any
    ) -> tuple[LoopState, Tensor, Tensor]:
        setup = self._setup(state.memory, capacity, dict(zip(names, values, strict=True)))
        state = advance(setup, state)
        return state, state.hypotheses.last[0, 0], unfinished(setup, state)

    def _setup(self, memory: Any, capacity: int, given: Mapping[str, Any]) -> Setup:
        strategy, constraints = self._strategy(given), self._constraints(given)
        return new_setup(
            self.model, memory, given["first"], given["limits"], strategy, constraints,
            slots=self.decode.batch_size, capacity=capacity,
        )  # fmt: skip

    def _settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings by name; each of `VARYING` is a `Number`, or None at its default."""
        settings = {one.name: getattr(self.decode, one.name) for one in dataclasses.fields(self.decode)}
        for index, (one, varied) in enumerate(zip(VARYING, self._varied(), strict=True)):
            settings[one.name] = Number(given["numbers"][0, index], given["numbers"][1, index]) if varied else None
        return settings

    def _constraints(self, given: Mapping[str, Any]) -> TokenConstraints:
        return from_settings(
            TokenConstraints, self._settings(given), end_id=END_ID, forbidden=self.forbidden,
            min_lengths=given.get("min_lengths"), prefix=given.get("prefix"),
        )  # fmt: skip

    def _strategy(self, given: Mapping[str, Any]) -> Any:
        decode, settings = self.decode, self._settings(given) | {"end_id": END_ID}
        if decode.sample:
            return from_settings(Sampling, settings, scored=True, numbers=given["randoms"], width=decode.n_best)
        if decode.beam_size == 1:
            return from_settings(Greedy, settings, scored=self.scored)
        return from_settings(BeamSearch, settings, width=decode.beam_size, kept=decode.n_best)

    def _randoms(self, queries: "Sequence[_Query]", count: int, capacity: int) -> np.ndarray:
        """Return a uniform random number for each token that may be drawn: (W + 1, K, C).

        They depend only on the seed and the sentence number, which key a counter-based generator.
        """
        numbers = np.zeros((count + 1, self.decode.n_best, capacity), np.float32)
        for row, query in enumerate(queries):
            key = np.array([self.decode.seed, query.number], np.uint64)
            draws = np.random.Generator(np.random.Philox(key=key)).random((capacity, self.decode.n_best), np.float32)
            numbers[row] = draws.T
        return numbers


def length_step() -> int:
    """Return the number whose multiples are the lengths for which searches are compiled."""
    return ACCELERATED_LENGTH_STEP if backend.runs_ahead() else LENGTH_STEP


class _Query(NamedTuple):
    """A source and the constraints on its results."""

    source: list
    number: int
    prefix: list
    limit: int


def _program_settings(decode: DecodeConfig) -> tuple[Any, ...]:
    """Return what a search is compiled for: the values of settings, but of `VARYING` only which are inputs."""
    values = {one.name: getattr(decode, one.name) for one in dataclasses.fields(decode) if one.name not in FREE}
    return tuple((values | {one.name: _is_input(decode, one) for one in VARYING}).items())


def _is_input(decode: DecodeConfig, one: dataclasses.Field) -> bool:
    """Return whether a setting of `VARYING` is an input of the program: unless it has its default, which does nothing.

    A temperature is one wherever tokens are drawn, since it costs nothing, so that all have the same program.
    """
    return (one.name == "temperature" and decode.sample) or getattr(decode, one.name) != one.default


def _parts(order: Sequence[int], lengths: Sequence[int], max_size: int, min_size: int) -> Iterator[Any]:
    """Cut indices, longest source first, into parts of up to `max_size`, at least `min_size` where lengths differ."""
    start = 0
    while start < len(order):
        size = max_size
        while size // 2 >= min_size and lengths[order[start:][:size][-1]] < MIN_LENGTH_RATIO * lengths[order[start]]:
            size //= 2
        yield order[start : start + size]
        start += size


def padded(numbers: Sequence[int] | np.ndarray, count: int) -> np.ndarray:
    """Return int32 numbers, padded with zeros to `count`."""
    padded = np.zeros(count, np.int32)
    padded[: len(numbers)] = numbers
    return padded
