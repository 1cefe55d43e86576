"""Greedy search and the translator: cached equals uncached, and neighbours change nothing."""

import itertools

import numpy as np
import pytest

import heedful
from heedful.config import DecodeConfig
from heedful.data.examples import END_ID, START_ID
from heedful.data.tokenizer import Tokenizer
from heedful.generation.search import greedy
from heedful.generation.translator import Translator


@pytest.fixture
def tokenizer(corpus):
    return Tokenizer.train(itertools.chain.from_iterable(corpus), "word", 60)


@pytest.fixture
def model(tokenizer):
    size = len(tokenizer)
    return heedful.Transformer(size, size, num_layers=2, d_model=24, num_heads=6, d_ff=20, max_length=19, tie="none")


def uncached(model, source, limit, numpy):
    """Greedy search the slow way: the whole model again for each token, one sentence at a time."""
    target = [START_ID]
    while len(target) <= limit:
        logits = numpy(model((source[None], np.array([target]))))[0, -1]
        target.append(int(logits.argmax()))
        if target[-1] == END_ID:
            break
    return target[1:]


def test_cached_loop_equals_the_slow_way(model, rng, numpy):
    """Guards position, cache, end token and limits in the loop; random weights, so nothing is learned by heart."""
    source = rng.integers(4, 20, (5, 7))
    source[1, 3:] = 0
    limits = np.array([11, 7, 0, 3, 11])
    ids = numpy(greedy(model, source, limits, max_steps=11, start_id=START_ID, end_id=END_ID))
    assert ids.shape == (5, 11)
    for row in range(5):
        want = uncached(model, source[row], limits[row], numpy) if limits[row] else []
        assert ids[row, : len(want)].tolist() == want
        assert not ids[row, len(want) :].any()


@pytest.fixture
def lines(rng):
    words = "o a gato vaca rei menina bebe come vê água pão leite".split()
    return [" ".join(rng.choice(words, n)) for n in rng.integers(0, 13, 23)]


def test_neighbours_and_order_change_nothing(model, tokenizer, lines):
    """The same translation alone, in any batch size and in any order; empty lines stay empty."""
    results = {}
    for batch_size in (1, 3, 64):
        translator = Translator(model, tokenizer, tokenizer, DecodeConfig(batch_size=batch_size))
        results[batch_size] = translator.translate(lines)
    assert results[1] == results[3] == results[64]
    assert translator.translate(lines[::-1]) == results[1][::-1]
    assert len(set(results[1])) > 3
    assert all((out == "") for line, out in zip(lines, results[1], strict=True) if not line)
    assert translator.translate(lines[1]) == results[1][1]


def test_long_lines_are_cut_with_a_warning_that_names_them(model, tokenizer):
    translator, warnings = Translator(model, tokenizer, tokenizer), []
    long = " ".join(["gato"] * 40)
    out = translator.translate(["o gato", long, ""], warnings.append)
    assert warnings == ["line 2 has 40 tokens; only the first 18 are translated."]
    assert out[1] == translator.translate(" ".join(["gato"] * 18))


def test_stream_reads_ahead_but_not_everything(model, tokenizer):
    """Guards memory: a pipe of any length must come out while it goes in."""
    translator = Translator(model, tokenizer, tokenizer, DecodeConfig(batch_size=1))
    source = iter(["o gato"] * 1000)
    stream = translator.stream(source)
    next(stream)
    assert len(list(source)) > 900
