"""The page's engine against heedful: every option of the architecture, every kind of tokenizer, every search."""

import dataclasses
import json

import numpy as np
import pytest

from heedful import CausalLM, Classifier, MaskedLM, Transformer, backend
from heedful.config import DecodeConfig
from heedful.config.architecture import DROPOUTS, Architecture, choices
from heedful.config.model import ModelConfig
from heedful.core.special_tokens import END_ID, START_ID
from heedful.data.markup.words import words_of
from heedful.data.phrasebook import phrasebook
from heedful.data.tokenizer import Tokenizer
from heedful.decoding.batch_search import BatchSearch
from heedful.inference.generator import Generator
from heedful.inspection.page.contents import Contents
from heedful.inspection.page.packing import pack
from heedful.inspection.readers import reader_of
from heedful.inspection.reading import Variant
from heedful.inspection.search_tree import TreeSearch
from heedful.interop.engines import PAGE
from heedful.layers import Trace
from heedful.runs.weights import weights_by_name
from tests.conftest import fast
from tests.page.conftest import page_of, write_document

pytestmark = pytest.mark.any_backend

SMALL = {"num_layers": 1, "d_model": 32, "num_heads": 4, "d_ff": 48, "max_length": 40}
# Every option of the architecture, alone and combined; sizes that are no multiple of 4 take the JavaScript product.
VARIANTS = {
    "default": {"num_layers": 2},
    **{f"{name}={value}": {name: value}
       for name in ("activation", "norm_position", "norm", "positions", "tie", "start_vector")
       for value in choices(name) if value != getattr(Architecture, name)},
    **{f"projections={value}": {"attention_projections": value} for value in choices("attention_projections")[1:]},
    "one key head": {"num_kv_heads": 1}, "two key heads": {"num_kv_heads": 2, "norm_position": "pre"},
    "head_dim": {"head_dim": 12},
    "qk norm": {"qk_norm": True}, "qk norm, no projections": {"qk_norm": True, "attention_projections": "none"},
    "qk norm, rotary": {"qk_norm": True, "positions": "rotary", "num_kv_heads": 2},
    "rotary with head_dim": {"positions": "rotary", "rotary_base": 300.0, "head_dim": 6, "num_kv_heads": 2},
    "no bias": {"bias": False}, "output bias": {"output_bias": True},
    "output bias, untied": {"output_bias": True, "tie": "none"},
    "embedding norm": {"embedding_norm": True, "positions": "learned"}, "no scale": {"embedding_scale": False},
    "no causal mask": {"causal_mask": False}, "epsilon": {"norm_epsilon": 1e-3},
    "two depths": {"encoder_layers": 3, "decoder_layers": 2}, "odd sizes": {"d_model": 30, "num_heads": 5, "d_ff": 50},
    "modern": {"num_layers": 2, "activation": "swiglu", "norm_position": "pre", "norm": "rms", "positions": "rotary",
               "num_kv_heads": 2, "bias": False, "tie": "all", "qk_norm": True},
}  # fmt: skip
# Models that combine several options; together they have every option and value too.
COMBINED = {
    **{name: VARIANTS[name] for name in ("default", "modern", "no causal mask")},
    "embedding norm": {"activation": "gelu", "positions": "learned", "embedding_norm": True, "tie": "inputs",
                       "bias": False},
    "concatenated": {"activation": "gelu_tanh", "norm_position": "pre", "positions": "sinusoidal_concatenated",
                     "tie": "none", "output_bias": True, "embedding_scale": False},
    "no positions": {"activation": "silu", "positions": "none", "num_kv_heads": 1, "norm_epsilon": 1e-3,
                     "encoder_layers": 2, "decoder_layers": 1},
    "rotary with head_dim": {"activation": "geglu", "positions": "rotary", "rotary_base": 300.0, "head_dim": 6,
                             "num_kv_heads": 2, "norm": "rms"},
    "projections=input": {"attention_projections": "input", "d_model": 30, "num_heads": 5, "d_ff": 50},
    "projections=output": {"attention_projections": "output", "tie": "all", "positions": "sinusoidal_marian",
                           "start_vector": "zero"},
    "projections=none": {"attention_projections": "none", "norm_position": "pre"},
}  # fmt: skip
TEXT_VARIANTS = ("default", "modern", "embedding norm", "no causal mask", "projections=none")
V, C = 53, 5
DECODE = {**dataclasses.asdict(DecodeConfig()), "max_length": 12}


@pytest.mark.parametrize("variants", [VARIANTS, COMBINED], ids=["single", "combined"])
def test_every_option_has_a_variant(variants):
    """Guards against an option, or value, that is declared for the page and not tried. Some change training only."""
    seen = {name for variant in variants.values() for name in variant} | set(SMALL)
    free = {*DROPOUTS, "embedding_std", "residual_init"}
    assert {field.name for field in dataclasses.fields(Architecture)} == seen | free
    for name in seen:
        values = {variant.get(name, getattr(Architecture, name)) for variant in variants.values()}
        assert set(PAGE.values.get(name, choices(name))) <= values, name


def contents_of_model(model, task, **more):
    """Return a page's `Contents` of a model without a run, float32."""
    architecture = dict(dataclasses.asdict(model.architecture).items())
    options = dataclasses.asdict(ModelConfig(**architecture, **more.pop("head", {})))
    content, table = pack(weights_by_name(model), "float32")
    tokenizer = json.loads(Tokenizer.train(["a b c"], kind="char", vocab_size=8).to_json())
    return Contents({
        "format": 1, "name": "model", "task": task, "model": options, "decode": DECODE,
        "parameters": model.count_params(),
        "type": "float32", "difference": 0.0, "checkpoints": [0], "examples": [], "tensors": [table],
        "tokenizers": {"source": tokenizer}, "forbidden": [0], "starts": True, "mask": 4,
        "labels": [f"class {number}" for number in range(C)], "log": [], "progress": [], "scores": [],
        "sentences": None, "importance": None,
    } | more, [content])  # fmt: skip


def perturbed(model, rng):
    """Return a model in which no weight is as at the beginning, so that no bias or gain is idle."""
    for variable in model.trainable_variables:
        variable.assign(np.asarray(backend.to_numpy(variable)) + 0.1 * rng.standard_normal(variable.shape))
    if model.architecture.start_vector == "zero" and hasattr(model, "target_embedding"):  # as training keeps it
        table = np.array(backend.to_numpy(model.target_embedding.embeddings))
        table[START_ID] = 0
        model.target_embedding.embeddings.assign(table)
    return model


@pytest.fixture(
    scope="module", params=[COMBINED, pytest.param(VARIANTS, marks=pytest.mark.slow)], ids=["combined", "single"]
)
def models(request):
    """For each name: (task, model, source ids, target ids)."""
    rng, variants = np.random.default_rng(0), request.param
    found = {}
    for name, options in variants.items():
        vocabularies = (V, V) if options.get("tie") in ("all", "inputs") else (V + 8, V)
        source, target = (rng.integers(5, V, length).tolist() for length in (11, 9))
        model = perturbed(Transformer(*vocabularies, **SMALL | options), rng)
        found[f"translate, {name}"] = ("translate", model, source, target)
    for name in TEXT_VARIANTS:
        options = SMALL | variants[name]
        source, target = (rng.integers(5, V, length).tolist() for length in (7, 8))
        masked = [*source[:2], 4, *source[2:], 4]
        found[f"generate, {name}"] = ("generate", perturbed(CausalLM(V, **options), rng), source, target)
        if name != "no causal mask":
            found[f"fill, {name}"] = ("fill", perturbed(MaskedLM(V, **options), rng), masked, [9, 11])
    for pooling, activation, *widths in (("mean", "tanh", 3, 5), ("max", "tanh"), ("first", "tanh"), ("first", "relu")):
        head = {"pooling": pooling, "pooler_activation": activation, "convolutions": tuple(widths)}
        model = perturbed(Classifier(V, C, **head, **SMALL | variants["embedding norm"]), rng)
        found[f"classify, {pooling}, {activation}"] = ("classify", model, rng.integers(5, V, 9).tolist(), [2])
    return found


def head_of(classifier):
    """Return the options of a classifier's head."""
    names = ("pooling", "pooler_activation", "convolutions")
    return {name: classifier.sizes[name] for name in names if name in classifier.sizes}


@pytest.fixture(scope="module")
def names(models):
    return list(models)


@pytest.fixture(scope="module")
def opened(browser, models, tmp_path_factory):
    """One page with all models."""
    path = tmp_path_factory.mktemp("engine") / "page.html"
    contents = [
        contents_of_model(model, task, **({"head": head_of(model)} if task == "classify" else {}))
        for task, model, _, _ in models.values()
    ]
    write_document(path, contents)
    with page_of(browser, path) as page:
        yield page


LOOK = """async ([run, source, target, off]) => {
  const { steps, maps, reading, logits } = await window.heedful.models[run].look({ source, target, off, keep: true });
  const plain = (map) => ({ ...map, weights: [...map.weights], mixed: [...map.mixed], values: [...map.values] });
  const all = Object.entries(maps).map(([kind, layers]) => [kind, layers.map(plain)]);
  return { steps, reading, logits: [...logits], maps: Object.fromEntries(all) };
}"""


def reference(task, model, source, target, trace=None):
    """Return heedful's logits (rows, V) for the rows that the page shows."""

    def run(*inputs):
        inputs = tuple(np.array([ids], np.int32) for ids in inputs)
        inputs = inputs if len(inputs) > 1 else inputs[0]
        program = (lambda ids: model(ids, trace=trace)) if trace else backend.compiled(model, model)
        return np.asarray(backend.to_numpy(program(inputs)))[0]

    if task == "translate":
        return run([*source, END_ID], [START_ID, *target])
    if task == "generate":
        return run([START_ID, *source, *target])[len(source) :]
    ids = [START_ID, *source, END_ID]
    logits = run(ids)
    return logits[None] if task == "classify" else logits[[place for place, token in enumerate(ids) if token == 4]]


def test_logits_equal_those_of_heedful(opened, models):
    worst = {}
    for number, (name, (task, model, source, target)) in enumerate(models.items()):
        want = reference(task, model, source, target)
        found = opened.evaluate(LOOK, [number, source, target, None])
        logits = np.array(found["logits"]).reshape(want.shape)
        worst[name] = np.abs(logits - want).max()
        top = [[entry["id"] for entry in step["top"][:1]] for step in found["steps"]]
        allowed = want.copy()
        if task == "fill":
            allowed[:, [0, 1, 2, 3, 4]] = -np.inf
        assert [row for [row] in top] == allowed.argmax(-1).tolist(), name
    assert max(worst.values()) < 1e-4, worst
    print(f"largest difference of a logit over {len(worst)} models: {max(worst.values()):.2g}")


KIND_PATHS = {"encoder": "encoder/block_{}/self_attention", "decoder": "decoder/block_{}/self_attention",
              "cross": "decoder/block_{}/cross_attention"}  # fmt: skip


@pytest.mark.slow
def test_maps_equal_those_of_heedful_and_reproduce_the_layer(opened, models):
    """Values mixed by a map must give what the layer mixes; key heads are shared by groups of query heads."""
    for number, (name, (task, model, source, target)) in enumerate(models.items()):
        trace, chosen = Trace(), model.architecture
        reference(task, model, source, target, trace)
        found = opened.evaluate(LOOK, [number, source, target, None])
        heads, size = chosen.num_heads, chosen.head_dim or chosen.d_model // chosen.num_heads
        shared = heads // (chosen.num_kv_heads or heads)
        for kind, layers in found["maps"].items():
            for layer, entry in enumerate(layers):
                rows, columns = entry["rows"], entry["columns"]
                weights = np.array(entry["weights"]).reshape(heads, rows, columns)
                want = np.asarray(backend.to_numpy(trace[KIND_PATHS[kind].format(layer)]))[0]
                np.testing.assert_allclose(weights, want, atol=2e-5, err_msg=f"{name} {kind} {layer}")
                np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
                values = np.array(entry["values"]).reshape(columns, -1, size).repeat(shared, axis=1)
                mixed = np.einsum("nts,snh->tnh", weights, values).reshape(rows, -1)
                np.testing.assert_allclose(np.array(entry["mixed"]).reshape(rows, -1), mixed, atol=1e-5)


@pytest.mark.parametrize("kind", ["cross", "decoder", "encoder"])
def test_a_head_that_is_off_equals_one_without_output_weights(opened, models, names, kind):
    name = "translate, default"
    task, model, source, target = models[name]
    off = {kind: {1: {2: True}}}
    found = opened.evaluate(LOOK, [names.index(name), source, target, off])
    stack, layer = ("encoder", "self") if kind == "encoder" else ("decoder", "cross" if kind == "cross" else "self")
    [kernel] = [v for v in model.weights if v.path.endswith(f"{stack}/block_1/{layer}_attention/output/kernel")]
    before = np.array(backend.to_numpy(kernel))
    without = before.copy()
    without[16:24] = 0
    kernel.assign(without)
    want = reference(task, model, source, target)
    kernel.assign(before)
    np.testing.assert_allclose(np.array(found["logits"]).reshape(want.shape), want, atol=1e-4)


WRITE = """async ([run, source, options]) => {
  let last;
  for await (last of window.heedful.models[run].write({ source, ...options }));
  return Array.isArray(last.done) ? last.done.map(({ ids, score }) => [ids, score]) : [[last.done.ids, 0]];
}"""


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("name", fast(["translate, default", "translate, modern", "translate, no causal mask"], 1))
def test_search_finds_what_heedful_finds(opened, models, names, name, width):
    _, model, source, _ = models[name]
    vocabulary = Tokenizer.train([chr(97 + i) for i in range(26)], kind="char", vocab_size=V)
    decode = DecodeConfig(beam_size=width, n_best=width, max_length=12, forbidden=("[PAD]",))
    rng = np.random.default_rng(1)
    sources = [source, *(rng.integers(5, V, length).tolist() for length in (1, 3, 7, 20))]
    want = BatchSearch(model, decode, vocabulary, scored=True)(sources)
    for ids, candidates in zip(sources, want, strict=True):
        found = opened.evaluate(WRITE, [names.index(name), ids, {"width": width}])
        assert [one[0] for one in found] == [candidate.ids for candidate in candidates]
        if width > 1:
            np.testing.assert_allclose([one[1] for one in found], [c.score for c in candidates], atol=1e-5)


def test_a_language_model_continues_as_heedful_does(opened, models, names):
    for name in ("generate, default", "generate, modern"):
        _, model, source, _ = models[name]
        tokenizer = Tokenizer.train([chr(97 + i) for i in range(26)], kind="char", vocab_size=V)
        generator = Generator(model, tokenizer, DecodeConfig(max_length=12, forbidden=("[PAD]",)), starts=True)
        ids = [token for token in source if token < len(tokenizer)] or [5]
        search = generator._search(generator._for_call({}), scored=False)
        [[want]] = search([[START_ID, *ids]], [1], limits=[12])
        [[found, _]] = opened.evaluate(WRITE, [names.index(name), ids, {}])
        assert found == want.ids, name


TEXTS = [
    "  zwei  Leerzeichen\tTab\n", "naïve café — “quotes” 😀 日本語 don't I'll 3,14", "", "ÄÖÜ ßẞ İstanbul ﬁ",
    "a\u0301 e\u0301 Ǆ", "[END] <s> [MASK]", "x" * 120, " leading", "trailing ", "l1\r\nl2  \n\n end", "Ὀδυσσεύς ΣΑΣ",
    "we're WE'RE it’s", "\u00a0nbsp\u2003em", "\u200bzero", "\ufeffbom\u0085next", "👩‍👩‍👧 🇩🇪", "½ ² Ⅷ ﷺ", "\x00\x07",
]  # fmt: skip
TOKENIZE = """async ([run, texts, ids]) => {
  const out = [];
  for (const [i, text] of texts.entries()) {
    const model = window.heedful.models[run], source = await model.split({ text });
    const shown = await model.show({ ids: ids[i] });
    out.push([source.ids, shown.text, shown.pieces]);
  }
  return out;
}"""


def tokenizers():
    lines = [line for pair in phrasebook("train", 1500) for line in pair]
    for kind in ("bpe", "unigram", "wordpiece", "word", "char"):
        for lowercase in (False, True):
            for prefix_space in (False, True) if kind in ("bpe", "unigram") else (False,):
                tokenizer = Tokenizer.train(lines, kind, 700, lowercase, prefix_space=prefix_space)
                yield f"{kind}{', lower-cased' * lowercase}{', prefix space' * prefix_space}", tokenizer
        for form in ("nfc", "nfkc"):
            yield f"{kind}, {form}", Tokenizer.train(lines, kind, 700, prefix_space=kind == "bpe", normalize=form)


def contents_of_tokenizers(named):
    """A run for each tokenizer."""
    model = Transformer(V, V, **SMALL | {"max_length": 4000})
    return [
        contents_of_model(model, "translate", tokenizers={"source": json.loads(tokenizer.to_json())})
        for tokenizer in named.values()
    ]


@pytest.mark.slow
def test_tokenizers_equal_those_of_the_library(browser, tmp_path):
    texts = TEXTS + [line for pair in phrasebook("test", 30) for line in pair]
    named = dict(tokenizers())
    with page_of(browser, write_document(tmp_path / "page.html", contents_of_tokenizers(named))) as page:
        for number, (name, tokenizer) in enumerate(named.items()):
            ids = tokenizer.encode_batch(texts)
            for text, want, found in zip(texts, ids, page.evaluate(TOKENIZE, [number, texts, ids]), strict=True):
                assert found == [want, tokenizer.decode(want), tokenizer.pieces(want)], (name, text)


SPLIT = "([number, texts]) => Promise.all(texts.map((text) => window.heedful.models[number].split({ text })))"


def test_tokens_stand_for_the_words_that_the_library_says(browser, tmp_path):
    """By the words of a text, since the library counts a space to a token or not; unknown ones too."""
    texts = [line for pair in phrasebook("test", 30) for line in pair]
    texts += ["Não é só água: 25 km – «já»", "it's  up_to-date", "o gato Ωμέγα come 日本 peixe"]
    named = dict(tokenizers())
    with page_of(browser, write_document(tmp_path / "page.html", contents_of_tokenizers(named))) as page:
        for number, (name, tokenizer) in enumerate(named.items()):
            for text, split in zip(texts, page.evaluate(SPLIT, [number, texts]), strict=True):
                ids, spans = tokenizer.ids_and_spans(text)
                seen = [bool(piece.strip()) for piece in tokenizer.pieces(ids)]
                want, found = (words_by_token(one, words_of(text), seen) for one in (spans, split["spans"]))
                assert found == want, (name, text)


def words_by_token(spans, words, seen):
    return [
        [word for word in words if word.start < end and word.end > start]
        for (start, end), is_seen in zip(spans, seen, strict=True) if is_seen
    ]  # fmt: skip


@pytest.mark.slow
def test_the_reader_of_a_served_page_equals_the_engine(opened, models):
    """Every option again: log-probabilities and maps, with a head off, and the search."""
    for number, (name, (_, model, source, target)) in enumerate(models.items()):
        reader = reader_of(model, True, 4)
        kind = next(iter(reader.layers))
        for off in (None, {kind: {0: {1: True}}}):
            heads = frozenset({(kind, 0, 1)} if off else ())
            variant = Variant(source, target, heads)
            found, seen = opened.evaluate(LOOK, [number, source, target, off]), reader.look(variant)
            logits = np.array(found["logits"]).reshape(seen.log_probabilities.shape)
            shifted = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
            np.testing.assert_allclose(seen.log_probabilities, shifted, atol=1e-4, err_msg=name)
            [(_, scores)] = reader.scores([variant])
            rows = np.arange(len(scores))
            np.testing.assert_allclose(scores, shifted[rows, reader.targets(variant)], atol=1e-4, err_msg=name)
            assert found["reading"]["readers"] == reader.readers(variant), name
            for each, layers in seen.attention.items():
                for entry, weights in zip(found["maps"][each], layers, strict=True):
                    assert (entry["rows"], entry["columns"]) == weights.shape[1:]
                    np.testing.assert_allclose(np.array(entry["weights"]), weights.ravel(), atol=2e-5, err_msg=name)


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("name", fast(["translate, default", "generate, modern"], 1))
def test_the_search_of_a_served_page_equals_the_engine(opened, models, names, name, width):
    _, model, source, target = models[name]
    decode = DecodeConfig(**DECODE)
    for prefix, off in (([], None), (target[:2], {"decoder": {0: {2: True}}})):
        heads = frozenset({("decoder", 0, 2)} if off else ())
        search = TreeSearch(reader_of(model), decode, [0], source, prefix, heads)
        found = opened.evaluate(WRITE, [names.index(name), source, {"width": width, "prefix": prefix, "off": off}])
        if width == 1:
            assert [*prefix, *(step.id for step in search.greedy() if step.id != END_ID)] == found[0][0]
        else:
            _, done = search.beam(width)
            assert [one.ids for one in done] == [ids for ids, _ in found]
            np.testing.assert_allclose([one.score for one in done], [score for _, score in found], atol=1e-5)


def test_a_page_says_how_it_computes(opened):
    """The kernel is a field of its own: benchmarks/page.py compares the two."""
    about = opened.evaluate("() => window.heedful.model.about()")
    assert about["kernel"] == "WASM SIMD"
    assert about["kernel"] in about["computed"]
    assert about["kernel"] in opened.locator("footer").inner_text()
