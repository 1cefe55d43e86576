"""Programs that JAX lowers for an NVIDIA GPU, on a machine that need not have one: no kernel or dtype is refused.

XLA compiles the lowered programs only where there is a GPU; `python -m benchmarks.gpu` does that.
"""

import re
import sys

import numpy as np
import pytest
from keras import ops

import heedful
from heedful import backend
from heedful.backend import programs
from heedful.config import DecodeConfig, TrainConfig
from heedful.decoding.batch_search import BatchSearch
from heedful.decoding.prompt_search import PromptSearch
from heedful.training.objective import training_objective
from tests.conftest import fast

pytestmark = pytest.mark.skipif(backend.NAME != "jax", reason="lowers programs of JAX")

SIZES = {"num_layers": 1, "d_model": 32, "num_heads": 2, "d_ff": 24, "max_length": 18, "dropout": 0.1}
MODELS = {
    "encoder-decoder": lambda dtype: heedful.Transformer(13, 13, tie="all", dtype=dtype, **SIZES),
    "deep encoder, one decoder layer": lambda dtype: heedful.Transformer(
        13, 13, dtype=dtype, **SIZES | {"num_layers": 2, "decoder_layers": 1}
    ),
    "decoder-only": lambda dtype: heedful.CausalLM(13, dtype=dtype, positions="rotary", **SIZES),
    "grouped keys, gated, RMS norm": lambda dtype: heedful.CausalLM(
        13, dtype=dtype, num_kv_heads=1, activation="swiglu", norm="rms", attention_dropout=0.1, **SIZES
    ),
    "encoder-only": lambda dtype: heedful.MaskedLM(13, dtype=dtype, **SIZES),
    "classifier": lambda dtype: heedful.Classifier(13, 3, dtype=dtype, **SIZES),
}
SEARCHES = {"greedy": {}, "beam": {"beam_size": 3}, "sampling": {"sample": True, "temperature": 0.8, "top_k": 5}}
DTYPES = fast(["float32", "mixed_bfloat16", "mixed_float16"], 2)


@pytest.fixture
def pretended_gpu(monkeypatch):
    """Let heedful and JAX take their paths for an NVIDIA GPU of today."""
    from jax._src.cudnn import fused_attention_stablehlo as cudnn

    answers = {"jax_on_cpu": False, "on_gpu": True, "has_fused_attention": True}
    for name, module in list(sys.modules.items()):
        for function, answer in answers.items():
            if name.startswith("heedful") and hasattr(module, function):
                monkeypatch.setattr(module, function, lambda answer=answer: answer)
    monkeypatch.setattr(cudnn, "check_cudnn_version", lambda: 91000)
    monkeypatch.setattr(cudnn, "check_compute_capability", lambda capability: True)
    monkeypatch.setattr(cudnn, "is_cuda_compute_capability_equal", lambda capability: False)


def lowered(function, *arguments):
    """Return the text of a jitted function's program for a GPU."""
    return function.trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()


class Lowered(Exception):
    """A program was lowered; it cannot run here."""


def labelled_batch(model):
    """Return random examples for a model, two rows of twelve tokens."""
    rng = np.random.default_rng(1)
    ids, labels = (rng.integers(4, 13, (2, 12)).astype(np.int32) for _ in range(2))
    batch = {"labels": labels, "weights": np.ones((2, 12), np.float32), "update_tokens": np.full(1, 24, np.float32)}
    if isinstance(model, heedful.Transformer):
        return batch | {"source": ids, "target": labels}
    if isinstance(model, heedful.Classifier):
        batch |= {"labels": labels[:, :1] % 3, "weights": np.ones((2, 1), np.float32)}
    return batch | {"ids": ids}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MODELS)
def test_an_update_lowers_for_cuda(name, dtype, pretended_gpu):
    import jax

    model = MODELS[name](dtype)
    objective = training_objective(model, TrainConfig())
    objective.optimizer.build(objective.trainable_variables)
    state = [
        [variable.value for variable in variables]
        for variables in (
            objective.trainable_variables, objective.non_trainable_variables, objective.optimizer.variables,
            objective.metrics_variables,
        )
    ]  # fmt: skip
    text = lowered(jax.jit(objective.train_step), state, (labelled_batch(model),))
    assert "stablehlo.dot_general" in text
    assert ("__cudnn$fmha" in text) == (dtype != "float32" and "grouped" not in name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("settings", SEARCHES.values(), ids=SEARCHES)
@pytest.mark.parametrize("name", ["encoder-decoder", "decoder-only", "grouped keys, gated, RMS norm"])
def test_a_search_lowers_for_cuda(name, settings, dtype, pretended_gpu, monkeypatch):
    model = MODELS[name](dtype)
    texts = []

    def only_lowered(function, model, **_):
        import jax

        def program(*arguments):
            texts.append(lowered(jax.jit(function), *arguments))
            raise Lowered

        return program

    monkeypatch.setattr(backend, "compiled", only_lowered)
    tokenizer = heedful.Tokenizer.train(["a b c d e f g h i"], "word", 13)
    kind = BatchSearch if isinstance(model, heedful.Transformer) else PromptSearch
    with pytest.raises(Lowered):
        kind(model, DecodeConfig(max_length=9, **settings), tokenizer)([[4, 5, 6], [7, 8]])
    assert "stablehlo.while" in texts[0]


def test_xla_knows_the_options_of_brief_programs():
    import jax

    assert jax.jit(lambda x: x + 1, compiler_options=programs.BRIEF_GPU_OPTIONS)(1) == 2


def test_a_brief_program_skips_the_trials_of_kernels_on_a_gpu(pretended_gpu):
    assert programs._compiler_options(loop=True, brief=True) == programs.BRIEF_GPU_OPTIONS
    assert programs._compiler_options(loop=True, brief=False) is None


def kernels_of_attention(query, keys, visible):
    """Return the kernels of cuDNN in the gradient of attention."""
    import jax

    def loss(query, keys, values):
        return ops.sum(ops.cast(backend.attend(query, keys, values, visible), "float32"))

    return sorted(set(re.findall(r"__cudnn\$\w+", lowered(jax.jit(jax.grad(loss, (0, 1, 2))), query, keys, keys))))


@pytest.mark.parametrize("shape", [(3, 1, 1, 8), (1, 1, 6, 8), (3, 1, 6, 8)])
@pytest.mark.parametrize("heads", [4, 2])
def test_sixteen_bit_attention_is_one_kernel_of_cudnn_on_nvidia(shape, heads, pretended_gpu):
    query, keys = (ops.ones((3, length, count, 16), "bfloat16") for length, count in ((6, 4), (8, heads)))
    fused = kernels_of_attention(query, keys, ops.ones(shape, "bool"))
    assert fused == ["__cudnn$fmhaScaleBiasSoftmax", "__cudnn$fmhaScaleBiasSoftmaxBackward"]
    assert kernels_of_attention(query, keys, None) == ["__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward"]


@pytest.mark.parametrize(("dtype", "length", "size"), [("float32", 6, 16), ("bfloat16", 5, 16), ("bfloat16", 6, 12)])
def test_attention_that_cudnn_refuses_is_left_to_xla(dtype, length, size, pretended_gpu):
    query, keys = (ops.ones((3, count, 4, size), dtype) for count in (length, 8))
    assert not kernels_of_attention(query, keys, ops.ones((3, 1, 1, 8), "bool"))
