"""The callback that shows texts during a plain `fit`."""

import pytest

import heedful
from heedful.data.tokenizer import Tokenizer
from heedful.inference.text_generator import TextGenerator
from heedful.training.fit_batches import pair_batches
from tests.conftest import PAIRS

SIZES = {"num_layers": 1, "d_model": 24, "num_heads": 2, "d_ff": 24, "max_length": 12, "dropout": 0.0}


@pytest.fixture
def tokenizer():
    return Tokenizer.train((text for pair in PAIRS for text in pair), "word", 60)


def test_a_language_model_shows_what_it_has_learned(tokenizer):
    """Greedy text must become the training text, which only the current weights can write."""
    ids = tokenizer(["the cat drinks"] * 8)["ids"]
    model, said = heedful.CausalLM(len(tokenizer), **SIZES), []
    model.compile("adam", heedful.TokenCrossentropy())
    model.optimizer.learning_rate = 0.03
    watch = TextGenerator("the", tokenizer, every=10, report=said.append, sample=False, top_k=0, max_length=2)
    model.fit(ids[:, 1:-1], ids[:, 2:], epochs=30, verbose=0, callbacks=[watch])
    assert [line.split(":")[0] for line in said] == ["epoch 10", "epoch 20", "epoch 30"]
    assert said[-1] == "epoch 30: the cat drinks"


@pytest.mark.any_backend
@pytest.mark.slow
def test_a_translator_shows_sources_and_translations(tokenizer):
    pairs = [("o gato bebe", "the cat drinks")] * 8
    model, said = heedful.Transformer(len(tokenizer), len(tokenizer), **SIZES), []
    model.compile("adam", heedful.TokenCrossentropy())
    model.optimizer.learning_rate = 0.01
    watch = TextGenerator(["o gato bebe"], tokenizer, every=40, report=said.append)
    batches = pair_batches(pairs, tokenizer, batch_sentences=8)
    model.fit(batches, epochs=80, verbose=0, shuffle=False, callbacks=[watch])
    assert said[-1] == "epoch 80: o gato bebe  ->  the cat drinks"
    assert len(said) == 2


@pytest.mark.slow
@pytest.mark.any_backend
def test_parameters_of_the_tutorials_models_are_those_of_their_formulas():
    """Sizes as published; each count is the sum of what the tutorials' layers hold."""
    heads, block = 2 * 256, 0
    block += 3 * (256 * heads + heads) + heads * 256 + 256  # query, key, value and output
    block += 2 * (256 * 256 + 256) + 2 * 2 * 256  # feed-forward network and two norms
    assert block == 658_688  # what the Keras example prints for its Transformer block
    want = 20_000 * 256 + 80 * 256 + block + 256 * 20_000 + 20_000
    options = {"tie": "none", "output_bias": True, "positions": "learned", "head_dim": 256, "max_length": 80}
    sizes = {"num_layers": 1, "d_model": 256, "num_heads": 2, "d_ff": 256}
    assert heedful.CausalLM(20_000, **sizes, **options).count_params() == want == 10_939_168

    # Vocabularies, layers, d_model and d_ff of the Keras tutorial, and of the TensorFlow tutorial's sample
    for source, target, layers, width, inner in ((8318, 7010, 4, 128, 512), (8500, 8000, 2, 512, 2048)):
        attention, norm = 4 * (width * width + width), 2 * width
        feed_forward = width * inner + inner + inner * width + width
        encoder, decoder = attention + feed_forward + 2 * norm, 2 * attention + feed_forward + 3 * norm
        want = width * (source + target) + layers * (encoder + decoder) + width * target + target
        sizes = {"num_layers": layers, "d_model": width, "num_heads": 8, "d_ff": inner}
        model = heedful.Transformer(source, target, tie="none", output_bias=True, **sizes)
        assert model.count_params() == want
