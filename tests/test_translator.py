"""The translator: results do not depend on the batch, lines keep their order, and all options take effect."""

import itertools

import numpy as np
import pytest

import heedful
from heedful import backend
from heedful.config import DecodeConfig
from heedful.core.errors import InputError, InputWarning
from heedful.core.special_tokens import END_ID, START_ID
from heedful.data.tokenizer import Tokenizer
from heedful.inference.translator import Translator
from heedful.inspection.translation import TranslationInspection
from heedful.models.ensemble import Ensemble
from tests.conftest import fast, quiet


@pytest.fixture
def tokenizer(corpus):
    return Tokenizer.train(itertools.chain.from_iterable(corpus), "word", 60)


HIDDEN = ("[PAD]", "[UNK]", "[START]")  # invisible in text, but untrained weights generate them


def small(tokenizer, **options):
    sizes = {"num_layers": 1, "d_model": 24, "num_heads": 6, "d_ff": 20, "max_length": 19}
    return heedful.Transformer(len(tokenizer), len(tokenizer), tie="none", **sizes, **options)


def leaning(tokenizer, by, **options):
    """Return a model with `by` as the bias of the end token; it never generates `HIDDEN`."""
    model, ids = small(tokenizer, output_bias=True, **options), np.arange(len(tokenizer))
    model.output_projection.bias.assign(np.where(ids < END_ID, -1e9, np.where(ids == END_ID, by, 0.0)))
    return model


@pytest.fixture
def model(tokenizer):
    return small(tokenizer)


@pytest.fixture
def lines(rng):
    words = "o a gato vaca rei menina bebe come vê água pão leite".split()
    return [" ".join(rng.choice(words, n)) for n in rng.integers(0, 8, 23)]


SEARCHES = [
    pytest.param({}, marks=pytest.mark.slow),  # beam search covers all that greedy search does
    {"beam_size": 3, "min_length": 2},
    pytest.param({"sample": True, "top_p": 0.9, "seed": 7}, marks=pytest.mark.slow),
]


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("options", SEARCHES, ids=["greedy", "beam", "sampling"])
def test_translations_do_not_depend_on_batch_size_or_order(model, tokenizer, lines, options):
    """Covers a line alone, two batch sizes and the reverse order; empty lines stay empty."""
    results = {}
    for batch_size in (2, 64):
        translator = Translator(model, tokenizer, tokenizer, DecodeConfig(batch_size=batch_size, **options))
        results[batch_size] = translator.translate(lines)
    assert results[2] == results[64]
    if options.get("sample"):  # random numbers depend on the position of a line
        assert translator.translate(lines, seed=8) != results[2]
        return
    assert translator.translate(lines[::-1]) == results[2][::-1]
    assert len(set(results[2])) > 3
    assert all((out == "") for line, out in zip(lines, results[2], strict=True) if not line)
    assert translator.translate(lines[1]) == results[2][1]


@pytest.fixture
def translator(model, tokenizer):
    return Translator(model, tokenizer, tokenizer)


def test_n_best_scores_are_sorted_log_probabilities(tokenizer, lines):
    """Each score equals the log-probability that the scorer computes for the text."""
    translator = Translator(leaning(tokenizer, 4.0), tokenizer, tokenizer)
    made = translator.n_best(lines, beam_size=4, n_best=3, length_penalty=0.0)
    for line, candidates in zip(lines, made, strict=True):
        if not line:
            assert candidates == [("", 0.0)]
            continue
        scores = [score for _, score in candidates]
        assert len(candidates) == 3
        assert scores == sorted(scores, reverse=True)
    search = translator.search_with(False, beam_size=4, n_best=3, length_penalty=0.0)
    sources = [tokenizer.encode(line) for line in lines if line]
    found = [
        (source, *candidate)
        for source, candidates in zip(sources, search(sources), strict=True)
        for candidate in candidates
        if len(candidate.ids) < search.length_limit(len(source))  # it has an end token, which is scored too
    ]
    assert len(found) > 5
    scored = translator._scorer(translator.decoding_model)(
        [source for source, _, _ in found], [ids for _, ids, _ in found]
    )
    np.testing.assert_allclose([tokens.sum() for tokens in scored], [score for *_, score in found], atol=1e-3)


@pytest.mark.parametrize("options", fast([{}, {"beam_size": 3}, {"sample": True}], 1))
def test_min_length_holds_up_to_the_limit_of_the_source(translator, options):
    """Covers a minimum equal to the maximum, and a minimum above the limit of a short source."""
    sources = [translator.source_tokenizer.encode(line) for line in ("o gato bebe água", "a vaca")]
    for settings, lengths in (
        ({"min_length": 5, "max_length": 5}, [5, 5]),
        ({"min_length": 1, "max_length": 1}, [1, 1]),
        ({"min_length": 12, "max_ratio": 2.0, "max_extra": 4}, [12, 8]),
    ):
        found = translator.search_with(forbidden=HIDDEN, **settings, **options)(sources)
        assert [len(candidates[0].ids) for candidates in found] == lengths


@pytest.mark.any_backend
def test_a_short_source_leaves_room_for_one_token(translator):
    """Guards against an error in the last line of a long text, which names a line that does not exist."""
    search = translator.search_with(forbidden=HIDDEN, max_ratio=0.4, max_extra=0, min_length=1)
    assert [len(candidates[0].ids) for candidates in search([[5], [5, 6, 7, 8, 9]])] == [1, 2]
    line = "o gato bebe. a vaca. o rei."
    with pytest.raises(InputError, match="The prefix of line 1 has 2 tokens"):
        list(translator.predict_stream([line], prefixes=["the cat"], max_length=2))


def test_score_returns_a_log_probability_for_every_token(translator, tokenizer, model, numpy):
    scores = translator.score(["o gato", "a vaca come"], ["the cat", ""])
    assert [len(x) for x in scores] == [3, 1]
    source, target = [*tokenizer.encode("o gato"), 3], [2, *tokenizer.encode("the cat")]
    logits = numpy(model((np.array([source]), np.array([target]))))[0].astype("float64")
    want = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
    np.testing.assert_allclose(scores[0], want[np.arange(3), [*target[1:], 3]], atol=1e-4)


def test_prefixes_begin_the_translation(translator):
    made = list(translator.predict_stream(["o gato", "a vaca"], prefixes=["the king", ""]))
    assert made[0][0][0].startswith("the king")
    assert made[1][0][0] == translator.translate("a vaca")
    with pytest.raises(
        InputError, match="The prefix of line 1 has 4 tokens; this source's translation may have at most 3"
    ):
        list(translator.predict_stream(["o gato"], prefixes=["the king sees bread"], max_length=3))


@pytest.mark.any_backend
def test_alternatives_begin_with_different_tokens(translator):
    found = translator.alternatives("o gato bebe", prefix="the", count=4)
    assert len({piece for piece, _, _ in found}) == 4
    assert [score for _, score, _ in found] == sorted((score for _, score, _ in found), reverse=True)
    assert all(text.split()[0] == "the" for _, _, text in found)
    assert found[0][1] < 0


@pytest.mark.any_backend
def test_alternatives_may_be_the_last_allowed_token(translator):
    options = {"prefix": "the cat", "count": 4, "forbidden": HIDDEN}
    found = translator.alternatives("o gato bebe", max_length=3, **options)
    longer = translator.alternatives("o gato bebe", **options)
    assert found == [(token, score, " ".join(text.split()[:3])) for token, score, text in longer]
    with pytest.raises(InputError, match="The prefix has 2 tokens; this source's translation may have at most 2"):
        translator.alternatives("o gato bebe", max_length=2, **options)


STREAMED = {"greedy": {}, "sampled": {"sample": True, "top_p": 0.9, "seed": 3}, "constrained": {
    "min_length": 7, "forbidden": HIDDEN, "no_repeat_ngram": 2}}  # fmt: skip


@pytest.mark.any_backend
@pytest.mark.parametrize("options", fast(STREAMED.values(), 2))
def test_streamed_tokens_add_up_to_the_whole_translation(translator, lines, options):
    """Guards against ignored settings: heedful 0.1.0 always streamed a plain greedy search."""
    line = max(lines, key=len)
    pieces = list(translator.stream_tokens(line, prefix="the", **options))
    [[whole]] = translator.predict_stream([line], prefixes=["the"], **options)
    assert len(pieces) > 3
    assert "".join(pieces) == whole.text


@pytest.mark.any_backend
def test_a_beam_cannot_be_streamed(translator):
    """The beam size of the settings is ignored; a beam size passed as an argument is refused."""
    beams = Translator(translator.model, *[translator.target_tokenizer] * 2, DecodeConfig(beam_size=3))
    assert "".join(beams.stream_tokens("o gato bebe")) == translator.translate("o gato bebe")
    with pytest.raises(InputError, match="A beam, or several results, cannot be streamed"):
        list(beams.stream_tokens("o gato bebe", beam_size=3))


@pytest.mark.any_backend
def test_a_source_of_the_maximum_length_can_be_streamed(tokenizer):
    size = len(tokenizer)
    model = heedful.Transformer(
        size, size, num_layers=1, d_model=8, num_heads=2, d_ff=8, positions="learned", max_length=10
    )
    translator = Translator(model, tokenizer, tokenizer)
    assert "".join(translator.stream_tokens("o gato " * 9, quiet)) == translator.translate("o gato " * 9, quiet)


@pytest.mark.any_backend
def test_greedy_scores_are_length_normalised_like_beam_scores(translator, lines):
    lines = [line for line in lines if line]
    settings = {"length_penalty": 0.0}, {"length_penalty": 1.0}, {"length_penalty": 0.6, "length_norm": "gnmt"}
    found = [[best[0] for best in translator.n_best(lines, forbidden=HIDDEN, **options)] for options in settings]
    for (text, plain), (_, average), (_, gnmt) in zip(*found, strict=True):
        length = round(plain / average)
        assert length - len(text.split()) in (0, 1)  # the end token counts, where there is one
        assert average == pytest.approx(plain / length, rel=1e-5)
        assert gnmt == pytest.approx(plain / ((5 + length) / 6) ** 0.6, rel=1e-5)


@pytest.mark.any_backend
def test_samples_are_sorted_by_score(translator, lines):
    for candidates in translator.n_best([line for line in lines if line], sample=True, n_best=4):
        scores = [score for _, score in candidates]
        assert scores == sorted(scores, reverse=True)


@pytest.mark.any_backend
@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_prefix_takes_precedence_over_other_constraints(translator, beam_size):
    begun = "the cat the cat the cat"
    rules = {"no_repeat_ngram": 2, "forbidden": ("cat",), "min_length": 9, "beam_size": beam_size}
    made = list(translator.predict_stream(["o gato bebe"], prefixes=[begun], max_length=12, **rules))
    words = made[0][0][0].split()
    assert words[:6] == begun.split()
    assert "cat" not in words[6:]
    assert len(words) >= 9


@pytest.mark.any_backend
def test_alternatives_exclude_forbidden_tokens(translator):
    found = [piece for piece, _, _ in translator.alternatives("o gato bebe", count=3)]
    others = [piece for piece, _, _ in translator.alternatives("o gato bebe", count=3, forbidden=(found[0],))]
    assert found[0] not in others
    assert others[:2] == found[1:]
    with pytest.raises(InputError, match="There is no text to translate"):
        translator.alternatives(" ")


@pytest.mark.any_backend
def test_a_single_text_is_refused_where_a_list_is_expected(translator):
    for method in (translator.n_best, lambda text: translator.score(text, ["the cat"])):
        with pytest.raises(InputError, match=r"takes a list of texts; put a single text into brackets"):
            method("o gato")
    with pytest.raises(InputError, match="1 line came with 2 references"):
        translator.score(["o gato"], ["the cat", "a cat"])
    with pytest.raises(InputError, match="Reference 1 has 40 tokens; the model writes 18"):
        translator.score(["o gato"], ["the cat " * 20])


@pytest.mark.any_backend
def test_settings_that_would_do_nothing_are_refused(translator):
    """Guards against tuning a temperature while the search is greedy."""
    for option in ("temperature", "top_k", "top_p", "min_p"):
        with pytest.raises(InputError, match=f"{option} applies to sampling only: set sample too"):
            translator.translate("o gato", **{option: 0.5})
    for option in ({"coverage_penalty": 0.2}, {"stop": "width"}):
        with pytest.raises(InputError, match="applies to beam search only: set a beam_size above 1"):
            translator.translate("o gato", **option)


@pytest.mark.any_backend
def test_a_list_is_refused_where_a_single_text_is_expected(translator):
    for method in (translator.alternatives, lambda line: list(translator.stream_tokens(line))):
        with pytest.raises(InputError, match="takes a single text, not list"):
            method(["o gato"])


@pytest.mark.any_backend
def test_drawing_the_attention_of_an_ensemble_is_refused(model, tokenizer):
    with pytest.raises(InputError, match="have no attention in common"):
        TranslationInspection.of(Translator(Ensemble([model, model]), tokenizer, tokenizer), "o gato")


@pytest.mark.slow
@pytest.mark.any_backend
def test_attention_is_drawn_for_a_translation_without_an_end_token(tokenizer):
    """Guards against reading one token more than the model has learned positions."""
    model = leaning(tokenizer, -1e9, positions="learned")
    translator = Translator(model, tokenizer, tokenizer)
    assert len(translator.decode_ids([tokenizer.encode("o gato " * 4)])[0]) == 19
    maps = TranslationInspection.of(translator, "o gato " * 4)
    assert maps.heads("decoder self", 1)[0].shape == (6, 19, 19)


@pytest.mark.any_backend
def test_a_space_at_the_end_of_a_prefix_belongs_to_the_next_word(corpus):
    """Guards against a separate space token, which byte-level training text never has before a word."""
    text = [target for _, target in corpus]
    for kind, size, same in (("bpe", 300, True), ("word", 60, True), ("char", 60, False)):
        tokenizer = Tokenizer.train(text, kind, size)
        translator = Translator(small(tokenizer), tokenizer, tokenizer)
        assert (translator._encode_prefixes(["the cat "]) == translator._encode_prefixes(["the cat"])) is same
    spaced = Tokenizer.train(text, "bpe", 300, prefix_space=True)
    assert spaced.carries_spaces


@pytest.mark.slow
@pytest.mark.any_backend
def test_alternatives_use_the_requested_precision(translator):
    plain = translator.alternatives("o gato bebe", prefix="the")
    rounded = translator.alternatives("o gato bebe", prefix="the", precision="bfloat16")
    assert plain[0][1] != rounded[0][1]
    assert plain[0][1] == pytest.approx(rounded[0][1], abs=0.1)
    source, begun = translator.source_tokenizer.encode("o gato bebe"), translator.target_tokenizer.encode("the")
    logits = backend.to_numpy(translator.model((np.array([[*source, END_ID]]), np.array([[START_ID, *begun]]))))[0, -1]
    probabilities = logits - np.logaddexp.reduce(logits)
    for piece, score, _ in plain:
        assert score == pytest.approx(probabilities[translator.target_tokenizer.lookup(piece)], abs=1e-4)


def test_lines_of_a_text_stay_apart(translator):
    """Records of JSON have texts of several lines; a list must not become one sentence."""
    lines = ["o gato bebe leite", "a menina vê o rei", "a vaca come pão"]
    whole, single = translator.translate([f"{lines[0]}\n\n{lines[1]}\n{lines[2]}\n", lines[2]])
    first, second, third = translator.translate(lines)
    assert (whole, single) == (f"{first}\n\n{second}\n{third}\n", third)
    assert translator.translate([f"{lines[0]}\n", "42 %\r\n"]) == [first, "42 %"]  # as a file yields its lines
    several = translator.n_best([f"{lines[0]}\n{lines[1]}"], beam_size=3, n_best=3)
    assert several == translator.n_best([f"{lines[0]} {lines[1]}"], beam_size=3, n_best=3)


@pytest.mark.any_backend
def test_blank_lines_have_an_empty_translation():
    spaced = Tokenizer.train(["o gato bebe"], "bpe", 300)
    model = heedful.Transformer(len(spaced), len(spaced), num_layers=1, d_model=8, num_heads=2, d_ff=8, max_length=20)
    translator = Translator(model, spaced, spaced, DecodeConfig(min_length=2))
    blank = [" ", "\t", " \n"]
    assert all(map(spaced.encode, blank))
    assert translator.translate(blank) == ["", "", ""]
    assert [list(translator.stream_tokens(line)) for line in ("", " ")] == [[], []]


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam_size": 60}, "beam_size .60. must be below the vocabulary's"),
        ({"forbidden": ("wolf",)}, "'wolf' is not a token of the vocabulary"),
        ({"min_length": 9, "max_length": 8}, "min_length .9. cannot exceed max_length .8."),
        ({"min_ratio": 3.0}, "min_ratio .3.0. cannot exceed max_ratio"),
        ({"n_best": 3}, "n_best .3. cannot exceed beam_size .1."),
        ({"sample": True, "beam_size": 2}, "Sampling has no beam"),
        ({"top_p": 0.0}, "top_p .0.0. must be above 0"),
    ],
)
def test_invalid_options_are_refused(translator, options, message):
    with pytest.raises(InputError, match=message):
        translator.translate("o gato", **options)


@pytest.mark.any_backend
def test_long_lines_are_cut_with_a_warning_that_names_them(model, tokenizer):
    translator, warnings = Translator(model, tokenizer, tokenizer), []
    long = " ".join(["gato"] * 40)
    out = translator.translate(["o gato", long, ""], warnings.append)
    assert warnings == ["line 2 has 40 tokens; only the first 18 are translated."]
    assert out[1] == translator.translate(" ".join(["gato"] * 18))
    with pytest.warns(InputWarning, match="line 2 has 40 tokens; .* So is 1 other text"):
        assert translator.translate(["o gato", long, long])[1] == out[1]


@pytest.mark.any_backend
def test_stream_reads_ahead_but_not_everything(model, tokenizer):
    """Guards memory and latency: the translation of a long pipe must start before the pipe ends."""
    translator = Translator(model, tokenizer, tokenizer, DecodeConfig(batch_size=1))
    source = iter(["o gato"] * 1000)
    stream = translator.stream(source)
    next(stream)
    assert len(list(source)) > 900


@pytest.mark.any_backend
def test_settings_of_a_request_compile_nothing(whole):
    """Guards against a program for each temperature, which takes seconds and memory in a server."""
    translator = Translator.from_run(whole)
    lines = ["o gato bebe", "a vaca come"]
    options = {"sample": True, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.1}
    translator.translate(lines, temperature=0.7, seed=1, **options)
    programs = translator.search_with().programs
    for number in range(20):
        varied = {name: value + number * 1e-3 for name, value in options.items() if name != "sample"}
        temperature = 1.0 if number == 10 else 0.1 + number * 0.01  # 1 is the default
        translator.translate(lines, sample=True, temperature=temperature, seed=number, **varied)
    assert len(programs) == 1
    cold, greedy = translator.translate(lines, sample=True, temperature=1e-3), translator.translate(lines)
    assert cold == translator.translate(lines, sample=True, temperature=5e-324) == greedy


@pytest.mark.parametrize("line", ["", "  ", "\u200b", "\ufeff \u2060", "\u00ad\u200e\u2028", "\u3000\t"])
def test_lines_with_nothing_to_see_stay_empty(translator, line):
    """Guards against a sentence for a line of invisible characters."""
    assert translator.translate([line]) == [""]
