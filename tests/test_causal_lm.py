"""The language model: causality, cached decoding after prompts, packed documents, generation."""

import keras
import numpy as np
import pytest
from keras import ops

import heedful
from heedful import backend
from heedful.config import DecodeConfig
from heedful.core.errors import InputError
from heedful.core.special_tokens import END_ID
from heedful.data.corpus import Corpus
from heedful.data.documents import encode_texts
from heedful.data.language import PackedDocuments
from heedful.data.tokenizer import Tokenizer
from heedful.inference.generator import Generator
from heedful.layers import masks
from heedful.training.objective import batch_sums
from tests.conftest import fast, quiet

SIZES = {"num_layers": 2, "d_model": 24, "num_heads": 6, "d_ff": 20, "max_length": 29}
OPTIONS = [
    {},
    {"norm_position": "pre", "positions": "rotary", "norm": "rms", "bias": False, "activation": "swiglu"},
    {
        "positions": "learned",
        "num_kv_heads": 2,
        "qk_norm": True,
        "tie": "none",
        "output_bias": True,
        "embedding_scale": False,
    },
    {"positions": "sinusoidal_concatenated", "activation": "gelu_tanh", "embedding_norm": True, "bias": False},
    {"positions": "none", "head_dim": 10, "num_kv_heads": 3, "attention_dropout": 0.1, "feed_forward_dropout": 0.1},
]


def make(**options):
    return heedful.CausalLM(31, **(SIZES | options))


@pytest.fixture
def ids(rng):
    ids = rng.integers(4, 31, (5, 11))
    ids[2, 6:] = 0
    return ids


@pytest.mark.parametrize("options", fast(OPTIONS, 1))
def test_logits_are_causal_and_independent_of_batching_and_caching(options, ids, numpy):
    """No position reads the future; batching changes nothing; prefill and decode steps equal one full pass."""
    model = make(**options)
    logits = numpy(model(ids))
    assert logits.shape == (5, 11, 31)
    changed = ids.copy()
    changed[:, 5:] = np.where(changed[:, 5:] == 4, 5, 4)
    np.testing.assert_allclose(numpy(model(changed))[:, :5], logits[:, :5], atol=1e-5)
    assert np.abs(numpy(model(changed))[:, 5:] - logits[:, 5:]).max() > 1e-3
    np.testing.assert_allclose(numpy(model(ids[3:4, :7]))[0], logits[3, :7], atol=1e-5)

    prompts = ids[:, :6].copy()
    lengths = [6, 4, 0, 1, 5]
    for row, length in enumerate(lengths):
        prompts[row, length:] = 0
    memory, past, steps = model.prefill(ops.convert_to_tensor(prompts)), model.empty_cache(5, 7), []
    for t in range(5):
        token = np.array([[ids[row, length + t]] for row, length in enumerate(lengths)])
        visible = ops.broadcast_to(masks.causal(ops.arange(t, t + 1), ops.arange(7)), (5, 1, 1, 7))
        step = model.decode_step(
            ops.convert_to_tensor(token), memory, past, place=t, positions=ops.full((5, 1), t, "int32"), visible=visible
        )
        past = step.past
        steps.append(numpy(step.logits)[:, 0])
    for row, length in enumerate(lengths):
        want = logits[row, length : length + 5]
        np.testing.assert_allclose(np.stack(steps, 1)[row], want, atol=1e-4)


@pytest.mark.slow
def test_documents_in_one_row_cannot_see_each_other(numpy, tokenizer):
    """Guards packing: each document has the same logits as alone, and each token counts once in the loss."""
    model = heedful.CausalLM(len(tokenizer), **SIZES, positions="learned")
    texts = ["the cat drinks", "the king sees the cow", "a", "the girl drinks milk and the cat sees the girl"]
    encoded = encode_texts(Corpus(lambda: texts, "x", "texts"), tokenizer)
    packed = PackedDocuments(encoded, 17, 7)
    batches = list(packed.one_pass())
    assert len(batches) == 1
    assert batches[0]["segments"].max() > 1
    logits = numpy(model(batches[0]))
    forward = backend.compiled(lambda ids: model(ids), model)
    for row, segments in enumerate(batches[0]["segments"]):
        for segment in range(1, segments.max() + 1):
            here = np.flatnonzero(segments == segment)
            alone = np.zeros((1, logits.shape[1]), "int32")  # one shape for all is compiled once
            alone[0, : len(here)] = batches[0]["ids"][row, here]
            np.testing.assert_allclose(logits[row, here], numpy(forward(alone))[0, : len(here)], atol=1e-5)
    sums = numpy(batch_sums(model, batches[0]))
    assert sums[3] == len(encoded.ids.flat) + len(texts)  # every token and every end, once


@pytest.mark.slow
def test_the_loss_includes_the_output_bias(ids, numpy):
    model = make(tie="none", output_bias=True)
    model.output_projection.bias.assign(np.arange(31) * 0.1)
    labels = np.roll(ids, -1, axis=1)
    logits = numpy(model(ids)).astype("float64")
    want = (np.logaddexp.reduce(logits, -1) - np.take_along_axis(logits, labels[..., None], -1)[..., 0]).sum()
    sums = numpy(batch_sums(model, {"ids": ids, "labels": labels, "weights": np.ones(ids.shape, "float32")}))
    np.testing.assert_allclose(sums[1], want, rtol=1e-5)


@pytest.mark.slow
def test_a_fitted_model_predicts_the_same_after_saving_and_loading(ids, tmp_path):
    model = make()
    model.compile(keras.optimizers.Adam(1e-2), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    history = model.fit(ids, np.roll(ids, -1, axis=1), epochs=30, batch_size=5, verbose=0).history["loss"]
    assert history[-1] < history[0] / 2
    before = model.predict(ids, verbose=0)
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(keras.saving.load_model(tmp_path / "model.keras").predict(ids, verbose=0), before)


@pytest.fixture
def tokenizer(corpus):
    return Tokenizer.train((target for _, target in corpus), "char", 60)


@pytest.fixture
def generator(tokenizer):
    model = heedful.CausalLM(len(tokenizer), **SIZES, positions="learned", norm_position="pre")
    for weight in model.trainable_weights:  # the output must depend on the input
        if "kernel" in weight.path or "embeddings" in weight.path:
            weight.assign(weight * 2.5)
    return Generator(model, tokenizer)


def slow_greedy(generator, prompts, count, numpy):
    """Continue prompts greedily by full passes; when the context overflows, keep only its last half."""
    model, context = generator.model, generator.model.max_length
    forward = backend.compiled(model, model)
    texts = [generator.tokenizer.encode(prompt) for prompt in prompts]
    windows = [ids[-context:] for ids in texts]
    for _ in range(count):
        windows = [window[-(context - context // 2) :] if len(window) > context else window for window in windows]
        padded = np.array([window + [0] * (context - len(window)) for window in windows])  # one shape for all
        logits = numpy(forward(padded))
        for ids, window, following in zip(texts, windows, logits, strict=True):
            if ids[-1] == END_ID:
                continue
            token = int(following[len(window) - 1, END_ID:].argmax()) + END_ID  # no padding, unknown or start token
            window.append(token)
            ids.append(token)
    return [generator.tokenizer.decode([number for number in ids if number != END_ID]) for ids in texts]


@pytest.mark.slow
@pytest.mark.parametrize("count", [pytest.param(9, marks=pytest.mark.slow), 71])
def test_greedy_search_equals_full_passes_beyond_the_context(generator, count, numpy):
    """Guards against effects of batch neighbours, too: each prompt fills its context after another number of tokens."""
    prompts = ["the cat", "a", "the king sees the cow and t", "the king sees the cow and the girl eats"]
    made = generator.generate(prompts, quiet, max_length=count, batch_size=2)
    assert made == slow_greedy(generator, prompts, count, numpy)
    assert made[1] == generator.generate(prompts[1], max_length=count)


@pytest.mark.slow
def test_min_length_holds_beyond_the_context(generator):
    """Guards against an end token that is allowed at the end of every round."""
    prompts = ["the cat", "a king", "the cow drinks milk and bre"]
    made = generator.generate(prompts, sample=True, temperature=3.0, min_length=60, max_length=80, seed=5)
    assert all(60 <= len(text) - len(prompt) <= 80 for prompt, text in zip(prompts, made, strict=True))


@pytest.mark.slow
def test_samples_depend_only_on_seed_and_index_of_the_prompt(generator):
    prompts = ["the cat", "a", "the king", "a"]
    options = {"sample": True, "max_length": 40, "top_k": 20}
    made = generator.generate(prompts, batch_size=1, **options)
    assert made == generator.generate(prompts, batch_size=64, **options)
    assert made[1] != made[3]
    assert made != generator.generate(prompts, seed=2, **options)


@pytest.mark.any_backend
def test_n_best_candidates_are_distinct_and_sorted_by_score(generator):
    best = generator.candidates(["the cat"], max_length=12, beam_size=3, n_best=3, length_penalty=0.0)[0]
    assert [score for _, score in best] == sorted((score for _, score in best), reverse=True)
    assert len({text for text, _ in best}) == 3
    assert all(text.startswith("the cat") for text, _ in best)


@pytest.mark.any_backend
def test_mistakes_in_generation_are_explained(generator):
    warnings = []
    generator.generate("the cat sees the girl and the king", warnings.append, max_length=3)
    assert warnings == ["prompt 1 has 34 tokens, more than the model's context of 29: only its end is read."]
    with pytest.raises(InputError, match="Prompt 2 is empty"):
        generator.generate(["a", ""])
    with pytest.raises(InputError, match="n_best needs prompt and text to fit into the model's 29 tokens"):
        generator.generate("a", max_length=40, sample=True, n_best=2)
    with pytest.raises(InputError, match="applies only to translation"):
        generator.generate("a", beam_size=2, coverage_penalty=0.2)
    covering = Generator(generator.model, generator.tokenizer, DecodeConfig(beam_size=2, coverage_penalty=0.2))
    with pytest.raises(InputError, match="coverage_penalty applies only to translation"):
        covering.generate("a")
    with pytest.raises(InputError, match="max_ratio applies only to translation"):
        generator.generate("a", max_ratio=0.5)
    assert generator.generate(text for text in ["a", "the"]) == generator.generate(["a", "the"])
    begins = Generator(generator.model, generator.tokenizer, DecodeConfig(max_length=5), starts=True)
    assert isinstance(begins.generate(""), str)
