"""Slots: sentences enter and leave at any time, and get what a search of all at once finds."""

import numpy as np
import pytest

from heedful import Transformer, backend
from heedful.config import DecodeConfig
from heedful.data.tokenizer import Tokenizer
from heedful.decoding.batch_search import BatchSearch
from heedful.decoding.slot_search import SlotSearch
from tests.conftest import SLOW_ON_TENSORFLOW, fast

V = 40
SIZES = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 24, "max_length": 60}


@pytest.fixture(scope="module")
def vocabulary():
    return Tokenizer.train([chr(97 + i) for i in range(26)], kind="char", vocab_size=V)


@pytest.fixture(scope="module")
def model():
    rng, model = np.random.default_rng(2), Transformer(V, V, **SIZES)
    for variable in model.trainable_variables:
        variable.assign(np.asarray(backend.to_numpy(variable)) + 0.4 * rng.standard_normal(variable.shape))
    return model


def decoded(search, sources, arrivals):
    """Decode sources that arrive a few at a time; return the candidates of each."""
    found, waiting = {}, list(range(len(sources)))
    for _ in range(2000):
        arriving = min(search.free, next(arrivals), len(waiting))
        search.admit({number: sources[number] for number in waiting[:arriving]})
        waiting = waiting[arriving:]
        found |= dict(search.run(3, 2))
        if len(found) == len(sources):
            return [found[number] for number in range(len(sources))]
    raise AssertionError("the search does not end")


SETTINGS = [
    {"no_repeat_ngram": 2, "repetition_penalty": 1.3},
    *fast([{"beam_size": 3}, {}, {"min_length": 4, "max_length": 9}, {"beam_size": 2, "coverage_penalty": 0.2}], 0),
]  # fmt: skip


@SLOW_ON_TENSORFLOW
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_results_are_those_of_a_batch(model, vocabulary, settings):
    decode = DecodeConfig(batch_size=4, **settings)
    rng = np.random.default_rng(5)
    sources = [rng.integers(4, 30, length).tolist() for length in rng.integers(1, 20, 23)]
    want = BatchSearch(model, decode, vocabulary)(sources)
    search = SlotSearch(model, decode, vocabulary, source_length=24)
    found = decoded(search, sources, iter(rng.integers(0, 4, 5000).tolist()))
    limits = [search.search.length_limit(len(source)) for source in sources]
    for one, other, limit in zip(found, want, limits, strict=True):
        if one is None:  # longer than a slot: allowed only then
            assert len(other[0].ids) + 1 >= search.capacity
            assert limit > search.capacity
        else:
            assert [candidate.ids for candidate in one] == [candidate.ids for candidate in other]
    assert sum(one is not None for one in found) > 12


@pytest.mark.any_backend
def test_a_removed_sentence_frees_its_slot(model, vocabulary):
    search = SlotSearch(model, DecodeConfig(batch_size=2), vocabulary)
    search.admit({"first": [5, 6], "second": [7, 8, 9]})
    assert search.free == 0
    search.remove(["first"])
    assert search.free == 1
    search.admit({"third": [9, 9]})
    found = {}
    while search.free < 2:
        found |= dict(search.run(4, 1))
    assert found.keys() == {"second", "third"}
    [want] = BatchSearch(model, DecodeConfig(), vocabulary)([[9, 9]])
    assert found["third"] is None or found["third"][0].ids == want[0].ids


@pytest.mark.any_backend
def test_what_is_written_can_be_followed(model, vocabulary):
    search = SlotSearch(model, DecodeConfig(batch_size=2, min_length=6), vocabulary)
    search.admit({"one": [5, 6, 7, 8]})
    search.run(2, 9)
    begun = search.written()["one"]
    assert len(begun) == 2
    while search.free < 2:
        results = search.run(1, 9)
    assert results[0].candidates[0].ids[:2] == begun
