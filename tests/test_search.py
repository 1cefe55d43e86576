"""Every search is compared with a slow reference: no cache, one sentence at a time, in plain Python."""

import itertools
import math
import weakref

import numpy as np
import pytest
from keras import ops

import heedful
from heedful import backend
from heedful.decoding.beam_search import BeamSearch
from heedful.decoding.constraints import TokenConstraints
from heedful.decoding.search import new_setup, search
from heedful.decoding.strategies import Greedy, Number, Sampling
from heedful.decoding.top_k import log_normaliser, top_k
from heedful.layers import Trace
from heedful.models.ensemble import Ensemble
from tests.conftest import fast

START, END, VOCABULARY = 2, 3, 11


@pytest.fixture
def make():
    def build(vocabulary=VOCABULARY, **options):
        sizes = {"num_layers": 2, "d_model": 24, "num_heads": 6, "d_ff": 20, "max_length": 19}
        model = heedful.Transformer(
            vocabulary, vocabulary, **(sizes | {"norm_position": "pre", "tie": "none"} | options)
        )
        for weight in model.trainable_weights:  # texts vary, and hypotheses differ by more than rounding
            if "kernel" in weight.path or "output_projection" in weight.path:
                weight.assign(weight * 2.0)
            if "target_embedding" in weight.path:
                weight.assign(weight * 3.0)
        return model

    return build


@pytest.fixture
def model(make):
    return make()


@pytest.fixture
def source(rng):
    source = rng.integers(4, VOCABULARY, (7, 5))
    for row, length in enumerate((5, 3, 5, 1, 4, 2, 5)):
        source[row, length:] = 0
    return source.astype("int32")


LIMITS = np.array([8, 6, 3, 7, 1, 8, 5])


def run(model, source, limits, strategy, rules=None, **options):
    options.setdefault("capacity", int(max(limits)))
    first = np.full(len(source), START)
    source, first, limits = map(ops.convert_to_tensor, (source, first, limits))
    results = search(new_setup(model, model.prefill(source), first, limits, strategy, rules, **options))
    return [ops.convert_to_numpy(x) for x in results]


FORWARD = weakref.WeakKeyDictionary()  # the compiled forward pass of each model


def log_probabilities(model, source, target, room=8):
    """Return the log-probabilities of the token after `target`, computed without a cache."""
    return all_log_probabilities(model, source, [target], room)[0]


def all_log_probabilities(model, source, targets, room=8):
    """Return `log_probabilities` of many targets."""
    if model not in FORWARD:
        FORWARD[model] = backend.compiled(lambda source, target: model((source, target)), model)
    padded = np.zeros((len(targets), room + 1), "int32")  # one shape for all, to compile once
    for row, target in enumerate(targets):
        padded[row, : len(target)] = target
    logits = ops.convert_to_numpy(FORWARD[model](np.repeat(source[None], len(targets), axis=0), padded))
    ends = np.array([len(target) - 1 for target in targets])
    logits = logits[np.arange(len(targets)), ends].astype("float64")
    return logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)


def coverage(model, source, target, room=8):
    """Return the summed attention to each source token while reading `target`, and 1 at padding."""
    if isinstance(model, Ensemble):
        return np.mean([coverage(each, source, target, room) for each in model.models], axis=0)
    padded = np.zeros((1, room + 1), "int32")
    padded[0, : len(target)] = target
    trace = Trace()
    model((source[None], padded), trace=trace)
    weights = ops.convert_to_numpy(trace[f"decoder/block_{model.num_layers - 1}/cross_attention"])
    weights = weights[0].mean(0)[: len(target)].sum(0)
    return np.where(source == 0, 1.0, weights)


def normalised(score, length, strategy, cover=None):
    norm = (5 + length) / 6 if strategy.length_norm == "gnmt" else length
    score = score / norm**strategy.length_penalty
    if strategy.coverage_penalty:
        score += strategy.coverage_penalty * np.log(np.clip(cover, 1e-20, 1)).sum()
    return score


def slow_beam(model, source, limit, strategy):
    """Run beam search for one sentence in plain Python."""
    live, done, ended = [(0.0, [START])], [], 0
    for length in range(1, limit + 1):
        candidates = []
        chances = all_log_probabilities(model, source, [target for _, target in live])
        for (score, target), following in zip(live, chances, strict=True):
            candidates += [(score + following[word], target, word) for word in range(VOCABULARY)]
        candidates = sorted(candidates, key=lambda c: -c[0])[: 2 * strategy.width]

        ending = [candidate for candidate in candidates[: strategy.width] if candidate[2] == END]
        going = [candidate for candidate in candidates if candidate[2] != END][: strategy.width]
        ended += len(ending)
        for score, target, word in ending + (going if length == limit else []):
            cover = coverage(model, source, target) if strategy.coverage_penalty else None
            done.append((normalised(score, length, strategy, cover), [*target[1:], word]))
        done = sorted(done, key=lambda d: -d[0])[: strategy.kept]
        live = [(score, [*target, word]) for score, target, word in going]
        if strategy.stop == "width" and ended >= strategy.width:
            break
        best = normalised(live[0][0], limit, strategy, np.ones(1))
        if strategy.stop == "attainable" and len(done) == strategy.kept and done[-1][0] >= best:
            break
    return done


@pytest.mark.parametrize("size", [13, 2049, 8000])
@pytest.mark.parametrize("k", [1, 2, 8])
def test_top_k_equals_a_full_sort(rng, numpy, size, k):
    scores = rng.permutation(np.arange(3 * size, dtype="float32")).reshape(3, size)
    values, places = (numpy(x) for x in top_k(ops.convert_to_tensor(scores), k))
    want = np.argsort(-scores, axis=-1)[:, :k]
    np.testing.assert_array_equal(places, want)
    np.testing.assert_array_equal(values, np.take_along_axis(scores, want, axis=-1))


@pytest.mark.parametrize("size", [13, 2049, 8000])
def test_the_log_normaliser_equals_logaddexp(rng, numpy, size):
    """Covers logits far from zero, where plain exponentials would overflow."""
    logits = rng.normal(size=(3, 2, size)).astype("float32") * 5 + np.array([[[0.0], [300.0]]], "float32")
    made = numpy(log_normaliser(ops.convert_to_tensor(logits)))
    np.testing.assert_allclose(made, np.logaddexp.reduce(logits.astype("float64"), axis=-1), rtol=1e-6)


def test_greedy_search_equals_the_reference(model, source):
    """Guards position, cache, end token, limits and scores."""
    tokens, scores, complete = run(model, source, LIMITS, Greedy(END, scored=True))
    assert tokens.shape == (7, 1, 8)
    assert complete.all()
    for row, limit in enumerate(LIMITS):
        target, score = [START], 0.0
        while len(target) <= limit and target[-1] != END:
            following = log_probabilities(model, source[row], target)
            target.append(int(following.argmax()))
            score += following.max()
        assert tokens[row, 0, : len(target) - 1].tolist() == target[1:]
        assert not tokens[row, 0, len(target) - 1 :].any()
        np.testing.assert_allclose(scores[row, 0], score, atol=1e-4)


BEAMS = [
    {"width": 3},
    {"width": 3, "kept": 2, "length_penalty": 0.8, "coverage_penalty": 0.3},
    {"width": 4, "kept": 3, "length_penalty": 1.0},
    {"width": 4, "kept": 4, "length_penalty": 0.7, "length_norm": "average", "stop": "width"},
]


@pytest.mark.parametrize("options", fast(BEAMS, 2))
def test_beam_search_equals_the_reference(model, source, options):
    """Guards ancestors in the shared cache, candidates, finished hypotheses, penalties and both stop rules."""
    strategy = BeamSearch(END, **options)
    tokens, scores, _ = run(model, source, LIMITS, strategy)
    for row, limit in enumerate(LIMITS):
        want = slow_beam(model, source[row], limit, strategy)
        for place, (score, target) in enumerate(want):
            assert tokens[row, place, : len(target)].tolist() == target, (row, place)
            np.testing.assert_allclose(scores[row, place], score, atol=1e-3)
            assert not tokens[row, place, len(target) :].any()


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_a_wide_beam_finds_the_best_of_all_sequences(make, length_penalty):
    """Compares with brute force over all sequences of up to four tokens from a vocabulary of seven."""
    model, limit = make(vocabulary=7), 4
    source = np.array([[4, 6, 5], [5, 4, 0]], "int32")
    strategy = BeamSearch(END, 216, length_penalty=length_penalty)
    tokens, scores, _ = run(model, source, [limit, limit], strategy)
    for row in range(2):
        begun = [words for length in range(limit) for words in itertools.product(range(7), repeat=length)]
        chances = all_log_probabilities(model, source[row], [[START, *words] for words in begun], limit)
        follow = dict(zip(begun, chances, strict=True))
        best = (-math.inf, None)
        for length in range(1, limit + 1):
            for words in itertools.product(range(7), repeat=length):
                if END in words[:-1] or (length < limit and words[-1] != END):
                    continue
                score = sum(follow[words[:place]][word] for place, word in enumerate(words))
                best = max(best, (normalised(score, length, strategy), words))
        found = tokens[row, 0].tolist()
        assert found == [*best[1], *[0] * (limit - len(best[1]))]
        np.testing.assert_allclose(scores[row, 0], best[0], atol=1e-3)


STRATEGIES = [
    Greedy(END, scored=True),
    BeamSearch(END, 3, 2, length_penalty=1.0),
    BeamSearch(END, 2, coverage_penalty=0.2),
]


@pytest.mark.parametrize("strategy", fast(STRATEGIES, 2), ids=["greedy", "beam", "coverage"])
@pytest.mark.parametrize("positions", fast(["learned", "sinusoidal", "rotary"], 1))
def test_reusing_slots_does_not_change_the_results(make, source, strategy, positions):
    """Guards ring buffers, positions, refilled memories and results: seven sentences in two slots and in seven."""
    model = make(positions=positions, num_kv_heads=2)
    rules = TokenConstraints(
        END, min_lengths=ops.convert_to_tensor(np.array([5, 3, 0, 5, 0, 4, 2, 0]))
    )  # few end at the same step
    whole = run(model, source, LIMITS, strategy, rules)
    refilled = run(model, source, LIMITS, strategy, rules, slots=2)
    np.testing.assert_array_equal(refilled[0], whole[0])
    np.testing.assert_allclose(refilled[1], whole[1], atol=1e-4)
    assert len({tuple(row.ravel()) for row in whole[0]}) > 3


def test_sentences_that_exceed_the_capacity_are_marked_incomplete(model, source):
    """Sentences that end within the capacity are not affected."""
    strategy = BeamSearch(END, 3, length_penalty=1.0)
    whole, _, all_complete = run(model, source, LIMITS, strategy)
    cut, _, complete = run(model, source, LIMITS, strategy, capacity=4)
    assert all_complete.all()
    assert 0 < complete.sum() < 7
    np.testing.assert_array_equal(cut[complete], whole[complete][:, :, :4])
    assert not whole[complete][:, :, 4:].any()


def uniform(rng, width, steps=8):
    return rng.random((8, width, steps)).astype("float32")


def test_sampling_follows_the_distribution_of_the_model(model, source, rng):
    """Compares the frequencies of a thousand first tokens with the model's probabilities."""
    width = 1000
    tokens, *_ = run(model, source[:1], [1], Sampling(END, numbers=uniform(rng, width, 1), width=width))
    want = np.exp(log_probabilities(model, source[0], [START]))
    have = np.bincount(tokens[0, :, 0], minlength=VOCABULARY) / width
    np.testing.assert_allclose(have, want, atol=4 * 0.5 / width**0.5)
    assert np.abs(have - want).max() > 0


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({"top_k": 3}, lambda p: p >= np.sort(p)[-3]),
        ({"top_p": Number(0.8, 1 / 0.8)}, lambda p: np.array([p[p > x].sum() < 0.8 for x in p])),
        ({"min_p": Number(0.3, 1 / 0.3)}, lambda p: p >= 0.3 * p.max()),
        ({"temperature": Number(1e-3, 1e3)}, lambda p: p == p.max()),
    ],
    ids=["top_k", "top_p", "min_p", "temperature"],
)
def test_sampling_draws_only_allowed_tokens(model, source, rng, options, allowed):
    width = 500
    strategy = Sampling(END, numbers=uniform(rng, width, 1), width=width, **options)
    tokens, *_ = run(model, source[:1], [1], strategy)
    probabilities = np.exp(log_probabilities(model, source[0], [START]))
    assert set(tokens[0, :, 0]) <= set(np.flatnonzero(allowed(probabilities)))
    assert set(tokens[0, :, 0]) >= set(np.flatnonzero(allowed(probabilities) & (probabilities > 0.03)))


def test_samples_of_a_sentence_depend_only_on_its_random_numbers(model, source, rng):
    numbers = uniform(rng, 2)
    tokens, scores, _ = run(model, source, LIMITS, Sampling(END, True, numbers=numbers, width=2))
    one = np.stack([numbers[4], numbers[7]])
    alone, alone_scores, _ = run(model, source[4:5], LIMITS[4:5], Sampling(END, True, numbers=one, width=2), capacity=8)
    np.testing.assert_array_equal(alone[0], tokens[4])
    np.testing.assert_allclose(alone_scores[0], scores[4], atol=1e-4)
    refilled, *_ = run(model, source, LIMITS, Sampling(END, True, numbers=numbers, width=2), slots=2)
    np.testing.assert_array_equal(refilled, tokens)


def lengths(tokens):
    return (tokens[:, 0] != 0).sum(-1)


@pytest.mark.any_backend
@pytest.mark.parametrize("strategy", fast([BeamSearch(END, 3), Greedy(END)], 1), ids=["beam", "greedy"])
def test_every_constraint_changes_the_text_and_is_satisfied(model, source, strategy):
    """Covers forbidden tokens, minimum lengths, prefixes, n-gram blocking and the repetition penalty."""
    limits = np.full(7, 8)
    free, *_ = run(model, source, limits, strategy)
    forbidden = tuple({int(token) for token in free[:, 0, 0]} - {END})[:2]
    kept, *_ = run(model, source, limits, strategy, TokenConstraints(END, forbidden=forbidden))
    assert set(forbidden) <= set(free.ravel().tolist())
    assert not set(forbidden) & set(kept.ravel().tolist())

    minimums = np.append(lengths(free), 0)  # the end token may not come where it did
    longer, *_ = run(
        model, source, limits, strategy, TokenConstraints(END, min_lengths=ops.convert_to_tensor(minimums))
    )
    assert (lengths(free) < 8).any()
    for row in range(7):
        assert END not in longer[row, 0, : minimums[row]]

    prefix = np.zeros((8, 3), "int32")
    prefix[0], prefix[2, :2] = (5, 9, 4), (7, 7)
    begun, *_ = run(model, source, limits, strategy, TokenConstraints(END, prefix=ops.convert_to_tensor(prefix)))
    assert begun[0, 0, :3].tolist() == [5, 9, 4]
    assert begun[2, 0, :2].tolist() == [7, 7]
    np.testing.assert_array_equal(begun[1], free[1])

    long = np.full(8, 8)
    endless = TokenConstraints(END, min_lengths=ops.convert_to_tensor(long))
    repeated, *_ = run(model, source, limits, strategy, endless)
    pairs = [list(itertools.pairwise(row[0].tolist())) for row in repeated]
    assert any(len(set(row)) < len(row) for row in pairs)
    once = TokenConstraints(END, min_lengths=ops.convert_to_tensor(long), no_repeat_ngram=2)
    unrepeated, *_ = run(model, source, limits, strategy, once)
    assert all(len(set(row)) == len(row) for row in (list(itertools.pairwise(x[0].tolist())) for x in unrepeated))

    mild = TokenConstraints(END, min_lengths=ops.convert_to_tensor(long), repetition_penalty=Number(3.0, 1 / 3.0))
    varied, *_ = run(model, source, limits, strategy, mild)
    assert sum(len(set(row[0])) for row in varied) > sum(len(set(row[0])) for row in repeated)


def test_repetition_penalty_equals_values_computed_by_hand(numpy):
    logits = ops.convert_to_tensor(np.array([[[2.0, -2.0, 4.0, -4.0, 1.0]]], "float32"))
    tokens = ops.convert_to_tensor(np.array([[[1, 2, 0]]], "int32"))
    age, sentence = (ops.convert_to_tensor(np.array([x], "int32")) for x in (2, 0))
    changed = numpy(TokenConstraints(END, repetition_penalty=Number(2.0, 0.5)).apply(logits, tokens, age, sentence))
    np.testing.assert_allclose(changed[0, 0], [2.0, -4.0, 2.0, -4.0, 1.0])


@pytest.mark.slow
def test_an_ensemble_averages_probabilities(make, source):
    one, other = make(), make(num_layers=1, positions="rotary")
    both = Ensemble([one, other])
    strategy = Greedy(END, scored=True)
    tokens, scores, _ = run(both, source, LIMITS, strategy)
    for row, limit in enumerate(LIMITS):
        target, total = [START], 0.0
        while len(target) <= limit and target[-1] != END:
            each = [log_probabilities(model, source[row], target) for model in (one, other)]
            mean = np.logaddexp(*each) - math.log(2)
            target.append(int(mean.argmax()))
            total += mean.max()
        assert tokens[row, 0, : len(target) - 1].tolist() == target[1:]
        np.testing.assert_allclose(scores[row, 0], total, atol=1e-4)
    covering = BeamSearch(END, 2, coverage_penalty=0.3)
    (want, target), *_ = slow_beam(both, source[0], LIMITS[0], covering)
    tokens, scores, _ = run(both, source, LIMITS, covering)
    assert tokens[0, 0, : len(target)].tolist() == target
    np.testing.assert_allclose(scores[0, 0], want, atol=1e-4)
    twice = run(Ensemble([one, one]), source, LIMITS, BeamSearch(END, 3))
    np.testing.assert_array_equal(twice[0], run(one, source, LIMITS, BeamSearch(END, 3))[0])
