"""Token ids in, token ids out: sources are sorted by length, given to the search in few shapes, and put back in order.

Axes: W sentences of one call of the search, S source length, K hypotheses, P results.
"""

import copy
import dataclasses
import functools
import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from heedful import backend
from heedful.data.encoded import Ragged
from heedful.data.examples import source_ids
from heedful.errors import InputError
from heedful.generation.rules import Rules
from heedful.generation.search import search
from heedful.generation.strategies import BeamSearch, Greedy, Sampling
from heedful.special_tokens import END_ID, START_ID

QUEUE = 4  # most sentences handed to one call for each slot: the more, the less often slots stand empty at its end
ALIKE = 2 / 3  # the shortest source of such a call is at least so long beside the longest, or there are fewer
FEW = 3  # sentences that need more room than expected and are no oddity
TOO_MANY_AGAIN = 0.05  # share of sentences that may need more room than expected, and a second call
SOURCE_STEP = 4  # source lengths are rounded up to this: few shapes to compile, little padding


class Candidate(NamedTuple):
    """One result for one source: its ids, without the end token, and its score in nats, normalised by length."""

    ids: list
    score: float


class Decoder:
    """Runs a search over many sources.

    Args:
        model: an encoder-decoder model, or an `Ensemble` of several, in the precision of `decode`; `Continuer` is for
            language models.
        decode: a `DecodeConfig`.
        tokenizer: of the target side; names the forbidden tokens and the size of the vocabulary.
        scored: whether greedy search adds up scores too; the others always do.

    Raises:
        InputError: a beam larger than the vocabulary, or an unknown forbidden token.
    """

    def __init__(self, model, decode, tokenizer, scored=False):
        self.model, self.decode, self.scored = model, decode, scored
        self.forbidden = forbidden_ids(decode, tokenizer)
        self._growth = 1.0  # tokens expected for each source token; more where a text shows that it takes more
        self._searched = self._again = 0  # sources since the last growth, and those that needed more room
        self._programs = {}

    def __call__(self, sources, numbers=None, prefixes=None, limits=None):
        """Continue every source.

        Args:
            sources: lists of ids, without end tokens, none empty.
            numbers: of the sentences, for the random numbers of sampling; 0, 1, ... if none are given.
            prefixes: lists of ids that the results must begin with, or None.
            limits: most tokens of each result, where that is less than `most`; or None.

        Returns:
            For each source a list of `n_best` `Candidate`s, best first.

        Raises:
            InputError: a prefix leaves no room.
        """
        jobs = [
            _Job(
                index,
                ids,
                index if numbers is None else numbers[index],
                prefixes[index] if prefixes else [],
                min(self.most(len(ids)), limits[index] if limits else self.most(len(ids))),
            )
            for index, ids in enumerate(sources)
        ]
        for job in jobs:
            require_room(job.prefix, job.limit, None if numbers is None else job.number)
        results = [None] * len(sources)
        jobs.sort(key=lambda job: len(job.source), reverse=True)
        again = self._run_all(jobs, results)
        self._expect_more(len(jobs), len(again))
        self._run_all(again, results, all_room=True)
        return results

    def _expect_more(self, searched, again):
        """Expect longer results from now on if many needed more room; an odd one would have all compiled anew."""
        self._searched, self._again = self._searched + searched, self._again + again
        if self._again >= FEW and self._again > self._searched * TOO_MANY_AGAIN:
            self._growth *= 1.5
            self._searched = self._again = 0

    def _run_all(self, jobs, results, all_room=False):
        """Search for jobs sorted by length, put the results in their places; return the jobs that found no end."""
        workers = backend.workers()
        slots = self.decode.batch_size
        chunks = list(_chunks(jobs, min(QUEUE * slots, math.ceil(len(jobs) / workers)), slots))
        run = functools.partial(self._run, all_room=all_room)
        if len(chunks) > 1:
            with ThreadPoolExecutor(workers) as pool:
                made = list(pool.map(run, chunks))
        else:
            made = map(run, chunks)
        again = []
        for job, candidates in zip(jobs, itertools.chain.from_iterable(made), strict=True):
            results[job.place] = candidates
            if candidates is None:
                again.append(job)
        return again

    def _run(self, jobs, all_room):
        """Search for one chunk, in all the room allowed or in what is expected; give None for what found no end."""
        arguments, room = self._arguments(jobs, all_room)
        found = self._program(room, tuple(arguments))(*arguments.values())
        tokens, scores, complete = (np.asarray(backend.to_numpy(array)) for array in found)
        return [
            [Candidate(until_end(ids), float(score)) for ids, score in zip(tokens[row], scores[row], strict=True)]
            if complete[row]
            else None
            for row in range(len(jobs))
        ]

    def _arguments(self, jobs, all_room):
        """Return what the compiled search is called with, by name, and the room for tokens."""
        count = _round_up(len(jobs), QUEUE * self.decode.batch_size)
        lengths = np.array([len(job.source) for job in jobs])
        rows = np.where(np.arange(count) < len(jobs), np.arange(count), -1)
        limits = _padded([job.limit for job in jobs], count)
        source, first = self._read(jobs, rows)
        arguments = {"source": source, "first": first, "limits": limits}
        least = np.maximum(self.decode.min_length, np.ceil(self.decode.min_ratio * lengths))
        if least.any():
            arguments["minimums"] = _padded(np.minimum(least, limits[: len(jobs)]), count + 1)
        begun = max(len(job.prefix) for job in jobs)
        room = int(limits.max()) if all_room else self._room(source.shape[1] + begun, int(limits.max()))
        if begun:
            prefixes = Ragged.of([job.prefix for job in jobs])
            arguments["prefix"] = prefixes.padded(np.append(rows, -1), _multiple(begun, SOURCE_STEP))
        if self.decode.sample:
            arguments["randoms"] = self._randoms(jobs, count, room)
        return arguments, room

    def _read(self, jobs, rows):
        """Return what the model reads before it writes (W, S), and the tokens that it reads first when it does (W,)."""
        needed = max(len(job.source) for job in jobs) + 1
        longest = max(needed, min(_multiple(needed, SOURCE_STEP), self.model.max_length))
        sources = Ragged.of([job.source for job in jobs])
        return source_ids(sources, rows, longest), np.full(len(rows), START_ID, np.int32)

    def _room(self, read, limit):
        """Return for how many tokens there shall be room where `read` are read and `limit` are the most allowed."""
        return min(_multiple(read * self._growth + 4, SOURCE_STEP), limit)

    def _program(self, room, names):
        if (room, names) not in self._programs:

            def run(*values):
                given = dict(zip(names, values, strict=True))
                rules = Rules(
                    END_ID, self.forbidden, given.get("minimums"), given.get("prefix"),
                    self.decode.repetition_penalty, self.decode.no_repeat_ngram,
                )  # fmt: skip
                strategy = self._strategy(given.get("randoms"))
                slots = self.decode.batch_size
                inputs = given["source"], given["first"], given["limits"]
                return tuple(search(self.model, *inputs, strategy, rules, slots=slots, room=room))

            self._programs[room, names] = backend.compiled(run, self.model, loop=True)
        return self._programs[room, names]

    def _strategy(self, randoms):
        decode = self.decode
        lengths = {"length_penalty": decode.length_penalty, "length_norm": decode.length_norm}
        if decode.sample:
            return Sampling(
                END_ID, scored=True, numbers=randoms, width=decode.n_best, temperature=decode.temperature,
                top_k=decode.top_k, top_p=decode.top_p, min_p=decode.min_p, **lengths,
            )  # fmt: skip
        if decode.beam_size == 1:
            return Greedy(END_ID, self.scored, **lengths)
        return BeamSearch(
            END_ID, decode.beam_size, decode.n_best, coverage_penalty=decode.coverage_penalty, stop=decode.stop,
            **lengths,
        )  # fmt: skip

    def _randoms(self, jobs, count, room):
        """Return a uniform number for each token that may be drawn: (W + 1, K, C).

        They depend on the seed and the number of the sentence only (a counter-based generator, keyed by both).
        """
        numbers = np.zeros((count + 1, self.decode.n_best, room), np.float32)
        for row, job in enumerate(jobs):
            key = np.array([self.decode.seed, job.number], np.uint64)
            draws = np.random.Generator(np.random.Philox(key=key)).random((room, self.decode.n_best), np.float32)
            numbers[row] = draws.T
        return numbers

    def most(self, length):
        """Return the most tokens that a source of `length` tokens may become."""
        return self.decode.most(length, self.model.max_length)


class Continuer(Decoder):
    """A decoder for language models: its sources are prompts, and what it writes is what follows them.

    It never writes padding, an unknown token or a start token: none of them is text.

    Args:
        model: a `CausalLM`.
        decode: a `DecodeConfig`; its `max_length` says how many tokens to write.
        tokenizer, scored: as of `Decoder`.
    """

    def __init__(self, model, decode, tokenizer, scored=False):
        super().__init__(model, decode, tokenizer, scored)
        self.forbidden = (tokenizer.pad_id, tokenizer.unknown_id, tokenizer.start_id, *self.forbidden)

    def most(self, length):
        """Return the most tokens that may follow a prompt of `length` tokens: the last one written is never read."""
        return min(self.decode.max_length, self.model.max_length - length + 1)

    def _read(self, jobs, rows):
        longest = min(_multiple(max(len(job.source) for job in jobs), SOURCE_STEP), self.model.max_length)
        before = Ragged.of([job.source[:-1] for job in jobs])
        return before.padded(rows, longest), _padded([job.source[-1] for job in jobs], len(rows))

    def _room(self, read, limit):
        return _multiple(limit, 2 * SOURCE_STEP)


class _Job(NamedTuple):
    """A source on its way through the decoder."""

    place: int
    source: list
    number: int
    prefix: list
    limit: int


class Decoders:
    """Decoders by their settings, made when they are first asked for; those that differ in the seed share programs.

    Args:
        make: from a `DecodeConfig`, and whether greedy search is scored, to a decoder.
    """

    def __init__(self, make):
        self._make, self._made = make, {}

    def __call__(self, decode, scored=False):
        """Return the decoder for these settings."""
        key = dataclasses.replace(decode, seed=0), scored
        if key not in self._made:
            self._made[key] = self._make(decode, scored)
        decoder = self._made[key]
        if decoder.decode != decode:
            decoder = copy.copy(decoder)
            decoder.decode = decode
        return decoder


def forbidden_ids(decode, tokenizer):
    """Return the ids of the tokens that are never written.

    Raises:
        InputError: one is no token of the vocabulary, or the vocabulary is smaller than the beam.
    """
    if decode.beam_size >= len(tokenizer):
        raise InputError(f"beam_size ({decode.beam_size}) must be below the vocabulary's {len(tokenizer)} entries.")
    ids = {token: tokenizer.lookup(token) for token in decode.forbidden}
    if unknown := [token for token, found in ids.items() if found is None]:
        raise InputError(f"decode.forbidden: {unknown[0]!r} is not a token of the vocabulary.")
    return tuple(ids.values())


def require_room(prefix, limit, number=None):
    """Refuse a source, line `number`, whose result may have `limit` tokens if its prefix leaves none."""
    of_line = "" if number is None else f" of line {number}"
    if prefix and len(prefix) >= limit:
        raise InputError(
            f"The prefix{of_line} has {len(prefix)} tokens; this source's translation may have at most {limit}."
        )
    if limit < 1:
        raise InputError(f"The settings leave no room for a translation{of_line}: see max_length and max_ratio.")


def until_end(ids):
    """Return the ids before the end token or padding, as a list."""
    stop = np.flatnonzero((ids == END_ID) | (ids == 0))
    return ids[: stop[0]].tolist() if len(stop) else ids.tolist()


def _chunks(jobs, most, least):
    """Cut sorted jobs, longest first, into chunks of up to `most`; of fewer, but `least`, where lengths differ much."""
    start = 0
    while start < len(jobs):
        size = most
        while size // 2 >= least and len(jobs[start:][:size][-1].source) < ALIKE * len(jobs[start].source):
            size //= 2
        yield jobs[start : start + size]
        start += size


def _round_up(count, most):
    """Return the next power of two, or `most`: few shapes to compile."""
    return min(most, 1 << (count - 1).bit_length())


def _padded(numbers, count):
    """Return int32 numbers, padded with zeros to `count`."""
    padded = np.zeros(count, np.int32)
    padded[: len(numbers)] = numbers
    return padded


def _multiple(number, step):
    return math.ceil(number / step) * step
