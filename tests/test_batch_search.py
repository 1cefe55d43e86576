"""A search over many sources: shapes, capacities, cached programs, and threads."""

import gc
import itertools
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

import heedful
from heedful.backend.program_cache import ProgramCache
from heedful.config import DecodeConfig
from heedful.data.tokenizer import Tokenizer
from heedful.decoding.batch_search import BatchSearch, _parts
from heedful.inference.translator import Translator


@pytest.fixture
def tokenizer(corpus):
    return Tokenizer.train(itertools.chain.from_iterable(corpus), "word", 60)


@pytest.fixture
def model(tokenizer):
    sizes = {"num_layers": 1, "d_model": 24, "num_heads": 6, "d_ff": 20, "max_length": 19}
    return heedful.Transformer(len(tokenizer), len(tokenizer), tie="none", **sizes)


@pytest.mark.any_backend
@pytest.mark.parametrize("beam_size", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_brief_search_finds_the_same(model, tokenizer, rng, beam_size):
    """Guards the self-check's search, which compiles few programs, and those fast."""
    sources = [rng.integers(4, len(tokenizer), length).tolist() for length in (3, 14, 5, 9, 2, 12, 7)]
    decode = DecodeConfig(beam_size=beam_size, n_best=beam_size, batch_size=4)
    full, brief = (
        BatchSearch(model, decode, tokenizer, scored=True, brief=brief)(sources, limits=[8] * 7)
        for brief in (False, True)
    )
    for one, other in zip(full, brief, strict=True):
        assert [candidate.ids for candidate in one] == [candidate.ids for candidate in other]
        assert [candidate.score for candidate in one] == pytest.approx(
            [candidate.score for candidate in other], abs=1e-4
        )


@pytest.mark.any_backend
def test_each_call_gets_sources_of_similar_length():
    lengths = [40, 30, 29, 20, 19, 18, 17, 16, 15, 14, 13, 12, 2]
    parts = [[lengths[index] for index in part] for part in _parts(list(range(13)), lengths, max_size=8, min_size=2)]
    assert parts == [[40, 30], [29, 20], [19, 18, 17, 16], [15, 14, 13, 12], [2]]


@pytest.mark.any_backend
def test_results_of_all_lengths_need_the_same_programs(model, tokenizer, rng):
    """Guards validations and first calls: when the lengths of results were estimated, most of their time was compiling.

    A model writes results of other lengths after some updates.
    """
    programs = ProgramCache()
    search = BatchSearch(model, DecodeConfig(batch_size=4, max_ratio=4.0), tokenizer, programs=programs)
    sources = [rng.integers(4, len(tokenizer), length).tolist() for length in rng.integers(1, 15, 17)]
    lengths, compiled = [], []
    for _ in range(3):
        lengths.append(sum(len(candidates[0].ids) for candidates in search(sources)))
        compiled.append(len(programs))
        for weight in model.trainable_weights:
            weight.assign(weight + rng.normal(size=weight.shape))
    assert len(set(lengths)) > 1
    assert len(set(compiled)) == 1


@pytest.mark.any_backend
def test_similar_lengths_have_one_program(model, tokenizer):
    """Guards requests of single sentences, and clients that set another maximum length with each."""
    programs = ProgramCache()
    for length in (4, 5, 6, 7):
        BatchSearch(model, DecodeConfig(max_extra=1), tokenizer, programs=programs)([[5] * length])
    assert len(programs) == 1
    for max_length in range(1, 9):
        BatchSearch(model, DecodeConfig(max_length=max_length), tokenizer, programs=programs)([[5] * 4])
    assert len(programs) == 2


@pytest.mark.any_backend
def test_the_longest_result_fits(model, tokenizer):
    """The length limit of the model, 19, is not a multiple of the step of capacities."""
    decode = DecodeConfig(max_ratio=100.0, min_length=19)
    [[longest]] = BatchSearch(model, decode, tokenizer)([[5, 6]])
    [[limited]] = BatchSearch(model, decode, tokenizer)([[5, 6]], limits=[3])
    assert (len(longest.ids), len(limited.ids)) == (19, 3)
    assert limited.ids == longest.ids[:3]


@pytest.mark.any_backend
def test_another_seed_or_length_reuses_the_program(model, tokenizer):
    programs = ProgramCache()
    texts = set()
    for settings in (
        {"seed": 1, "min_length": 1},
        {"seed": 2, "min_length": 2},
        {"seed": 3, "max_extra": 9, "min_length": 1},
    ):
        search = BatchSearch(model, DecodeConfig(sample=True, max_length=4, **settings), tokenizer, programs=programs)
        texts.add(str(search([[5, 6, 7]])))
    assert len(programs) == 1
    assert len(texts) > 1


@pytest.mark.slow
@pytest.mark.any_backend
def test_sixteen_threads_get_the_results_of_one(model, tokenizer, rng):
    """Each thread has its own settings, some of which share programs; results equal those of sequential calls."""
    words = "o a gato vaca rei menina bebe come vê água pão leite".split()
    texts = [[" ".join(rng.choice(words, n)) for n in rng.integers(1, 7, 5)] for _ in range(16)]
    options = [{"beam_size": 1 + index % 2, "min_length": 1 + index % 3} for index in range(16)]
    alone = Translator(model, tokenizer, tokenizer)
    wanted = [alone.n_best(lines, **settings) for lines, settings in zip(texts, options, strict=True)]
    shared = Translator(model, tokenizer, tokenizer)
    with ThreadPoolExecutor(16) as pool:
        for _ in range(3):  # the first round compiles the programs, later rounds reuse them
            found = list(pool.map(lambda lines, settings: shared.n_best(lines, **settings), texts, options))
            assert [[[text for text, _ in line] for line in lines] for lines in found] == [
                [[text for text, _ in line] for line in lines] for lines in wanted
            ]
            for lines, others in zip(found, wanted, strict=True):
                for line, other in zip(lines, others, strict=True):
                    assert [score for _, score in line] == pytest.approx([score for _, score in other], abs=1e-5)


@pytest.mark.any_backend
def test_the_program_cache_drops_the_least_recently_used_program():
    """Guards a server's memory against a client that requests new settings every time."""
    programs, created = ProgramCache(size=3), []

    def program(name):
        def create():
            created.append(name)
            return lambda: name

        return programs.get(name, create)

    kept = [weakref.ref(program(name)) for name in "abc"]
    assert program("a")() == "a"
    assert [program(name)() for name in "dae"] == list("dae")
    gc.collect()
    assert len(programs) == 3
    assert [reference() is None for reference in kept] == [False, True, True]
    assert created == list("abcde")
    assert program("b")() == "b"
    assert created == list("abcdeb")


@pytest.mark.any_backend
def test_threads_that_waited_for_a_compilation_run_side_by_side():
    """Guards against a first burst of requests that was computed one by one."""
    first_call, together, calls = threading.Event(), threading.Barrier(2, timeout=20), itertools.count()
    begun = threading.Barrier(4, timeout=20)

    def function():
        if next(calls) == 0:
            first_call.wait(20)
        else:
            together.wait()  # fails unless two threads are here

    program = ProgramCache().get("key", lambda: function)

    def call():
        begun.wait()
        program()

    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(call) for _ in range(3)]
        begun.wait()
        time.sleep(0.1)  # all three have called it: one computes, two wait
        first_call.set()
        assert [each.result(20) for each in running] == [None] * 3


@pytest.mark.any_backend
def test_a_translator_keeps_a_bounded_number_of_programs(model, tokenizer, monkeypatch):
    monkeypatch.setattr("heedful.backend.program_cache.ProgramCache.__init__.__defaults__", (2,))
    programs = ProgramCache()
    for top_k in (1, 2, 3):
        BatchSearch(model, DecodeConfig(sample=True, top_k=top_k), tokenizer, programs=programs)([[5, 6]])
    assert len(programs) == 2
