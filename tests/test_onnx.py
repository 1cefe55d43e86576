"""Exports to ONNX: onnxruntime computes what heedful does, for every option and task."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

from heedful import backend
from heedful.core.errors import InputError, InputWarning
from heedful.interop.export import onnx, onnx_models
from heedful.interop.export.onnx_session import Session, padded
from heedful.interop.export.parity import export_checked
from tests.conftest import PAIRS
from tests.test_huggingface import random_run

pytestmark = pytest.mark.any_backend

SOURCES = [source for source, _ in PAIRS]
TARGETS = [target for _, target in PAIRS]
SMALL = {"num_layers": 2, "d_model": 24, "num_heads": 4, "d_ff": 20, "max_length": 40}
# Options of the architecture, each case with several that differ from the default.
OPTIONS = [
    {"norm_position": "pre", "positions": "rotary", "norm": "rms", "activation": "swiglu", "bias": False,
     "num_kv_heads": 2, "rotary_base": 300.0},
    {"positions": "learned", "embedding_norm": True, "activation": "gelu", "tie": "none", "output_bias": True,
     "embedding_scale": False, "norm_epsilon": 1e-3, "qk_norm": True},
    {"positions": "sinusoidal_concatenated", "activation": "silu", "head_dim": 10, "tie": "inputs"},
    {"positions": "none", "activation": "geglu", "attention_projections": "output"},
    {"positions": "sinusoidal", "activation": "gelu_tanh", "attention_projections": "none", "tie": "target"},
    {"norm_position": "pre", "attention_projections": "input", "num_kv_heads": 1, "tie": "all"},
]  # fmt: skip
HEADS = [
    {"pooling": "mean", "convolutions": (3, 5)}, {"pooling": "first", "pooler_activation": "relu"},
    {"pooling": "first"}, {"pooling": "max"},
]  # fmt: skip
CASES = [("translate", options) for options in OPTIONS]
CASES += [("generate", options) for options in OPTIONS] + [("fill", options) for options in OPTIONS]
CASES += [("classify", options | head) for options, head in zip(OPTIONS, HEADS, strict=False)]


def exported(run, tmp_path, **options):
    folder = tmp_path / "onnx-export"
    folder.mkdir()
    onnx.write(run, folder, **options)
    return folder / "onnx"


@pytest.mark.parametrize(
    ("task", "options"),
    [case if index % 6 < 2 else pytest.param(*case, marks=pytest.mark.slow) for index, case in enumerate(CASES)],
)
def test_logits_equal_those_of_heedful(tmp_path, task, options, rng):
    """Logits of a first call and of a call with caches; padding in the batch."""
    run = random_run(tmp_path, task, SMALL | options)
    model, session = run.load_model(), Session(exported(run, tmp_path))
    vocabulary = len(run.target_tokenizer)
    texts = [rng.integers(4, vocabulary, length).tolist() for length in (9, 5)]
    ids, mask = padded(texts)

    def ours(*inputs):
        arrays = tuple(np.asarray(one, np.int32) for one in inputs)
        return np.asarray(backend.to_numpy(model(arrays if len(arrays) > 1 else arrays[0])), np.float32)

    if task == "translate":
        target = rng.integers(4, vocabulary, (2, 7))
        memory = session.run("encoder_model", {"input_ids": ids, "attention_mask": mask})["last_hidden_state"]
        found = called(session, "decoder_model_merged", target, [4, 2, 1],
                       {"encoder_attention_mask": mask, "encoder_hidden_states": memory})  # fmt: skip
        np.testing.assert_allclose(found, ours(ids, target), atol=1e-4)
    elif task == "generate":
        whole = rng.integers(4, vocabulary, (2, 9))
        np.testing.assert_allclose(called(session, "model", whole, [5, 3, 1], {}), ours(whole), atol=1e-4)
    else:
        found = session.run("model", {"input_ids": ids, "attention_mask": mask})["logits"]
        expected = ours(ids)
        rows = range(2) if task == "classify" else [slice(None)]
        for row in rows:
            real = mask.astype(bool) if task == "fill" else row
            np.testing.assert_allclose(found[real], expected[real], atol=1e-4)


def called(session, name, ids, lengths, fixed):
    """Return the logits of ids (B, T) that a model with caches reads in parts of some lengths."""
    past, logits, place = session._empty_caches(name, len(ids)), [], 0
    for number, length in enumerate(lengths):
        part = ids[:, place : place + length]
        inputs = fixed | past | {"input_ids": part.astype(np.int64)}
        if "encoder_hidden_states" in fixed:
            inputs["use_cache_branch"] = np.array([number > 0])
        else:
            inputs["attention_mask"] = np.ones((len(ids), place + length), np.int64)
        outputs = session.run(name, inputs)
        logits.append(outputs.pop("logits"))
        past = {kind.replace("present", "past_key_values"): array for kind, array in outputs.items()}
        place += length
    return np.concatenate(logits, 1)


def test_caches_are_in_the_order_that_optimum_goes_by(tmp_path):
    """It pairs outputs and inputs by their order, layer by layer, whatever their names."""
    run = random_run(tmp_path, "translate", SMALL)
    decoder = Session(exported(run, tmp_path))._models["decoder_model_merged"]
    kinds = [f"{side}.{part}" for side in ("decoder", "encoder") for part in ("key", "value")]
    order = [f"{layer}.{kind}" for layer in range(run.config.model.num_layers) for kind in kinds]
    assert [one.name for one in decoder.get_outputs()] == ["logits", *(f"present.{name}" for name in order)]
    past = [one.name for one in decoder.get_inputs() if one.name.startswith("past")]
    assert past == [f"past_key_values.{name}" for name in order]


def test_prompts_may_be_padded_on_the_left(tmp_path, rng):
    """As transformers.js and Optimum do in batches: positions count real tokens only."""
    run = random_run(tmp_path, "generate", SMALL | {"positions": "learned", "embedding_scale": False})
    session = Session(exported(run, tmp_path))
    ids = rng.integers(4, len(run.tokenizer), (1, 6))
    alone = called(session, "model", ids, [6], {})
    wide = np.pad(ids, ((0, 0), (3, 0)))
    mask = np.pad(np.ones((1, 6), np.int64), ((0, 0), (3, 0)))
    inputs = session._empty_caches("model", 1) | {"input_ids": wide, "attention_mask": mask}
    np.testing.assert_allclose(session.run("model", inputs)["logits"][:, 3:], alone, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "task", ["translate", *(pytest.param(task, marks=pytest.mark.slow) for task in ("generate", "fill", "classify"))]
)
def test_an_export_is_checked_and_its_readme_runs(tmp_path, task):
    options = {"convolutions": (3,)} if task == "classify" else {}
    run, lines, folder = random_run(tmp_path, task, SMALL | options), [], tmp_path / "out"
    texts = SOURCES if task == "translate" else TARGETS
    forbidden = run.target_tokenizer.lookup(len(run.target_tokenizer) - 1)
    decode = dataclasses.replace(run.config.decode, forbidden=(forbidden,), split="never", markup="none")
    run.config = dataclasses.replace(run.config, decode=decode)
    results = export_checked(run, onnx.FORMAT, folder, texts, quantization="int8", report=lines.append)
    assert [result["quantization"] for result in results] == ["float32", "int8"]
    assert results[0].get("identical", 1.0) == 1.0
    assert results[0].get("output_difference", 0.0) < 1e-4
    assert json.loads((folder / "parity.json").read_text()) == results
    assert any("identical" in line or "largest difference" in line for line in lines)
    code = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0]
    call = {
        "translate": "print(translate(text, 39))", "generate": "print(generate(text, tokens=5))",
        "fill": "print(outputs(text).shape)", "classify": "print(outputs(text).argmax())",
    }[task]  # fmt: skip
    text = f"{texts[0]} [END] {' '.join(texts)}"  # longer than the model reads, with a token that is text
    script = f"{code}\ntext = {text!r}\n{call}"
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    predictor = run.task.predictor([run])
    if task == "translate":
        decode = dataclasses.replace(run.config.decode, beam_size=1, max_ratio=1e6, max_length=39)
        with pytest.warns(InputWarning, match="only the first"):
            assert done.stdout.strip() == run.task.predictor([run], decode).translate(text)
    elif task == "classify":
        with pytest.warns(InputWarning, match="only the first"):
            assert run.config.data.labels[int(done.stdout)] == predictor.classify(text).label


@pytest.mark.slow
def test_an_export_that_computes_something_else_is_not_kept(tmp_path, monkeypatch):
    run, graphs = random_run(tmp_path, "fill", SMALL), onnx_models.encoder

    def damaged(weights, *arguments, **options):
        return graphs(weights | {"transform/bias": weights["transform/bias"] + 1}, *arguments, **options)

    monkeypatch.setattr(onnx_models, "encoder", damaged)
    with pytest.raises(InputError, match="onnxruntime does not compute what heedful does"):
        export_checked(run, onnx.FORMAT, tmp_path / "out", TARGETS, report=lambda line: None)
    assert not (tmp_path / "out").exists()


def test_the_command_exports_and_refuses_other_types(whole, cli):
    done = cli("export", whole.path, "--to", "onnx", "--quantization", "int8")
    assert done.returncode == 0, done.stderr
    assert b"100.00% of" in done.stdout + done.stderr
    names = {path.name for path in (whole.path / "onnx" / "onnx").iterdir()}
    assert names == {
        f"{name}{ending}.onnx" for name in ("encoder_model", "decoder_model_merged") for ending in ("", "_quantized")
    }
    assert b"Exports for onnxruntime have --quantization float32 or int8, not 'float16'" in cli(
        "export", whole.path, "--to", "onnx", "--quantization", "float16"
    ).stderr  # fmt: skip


def test_a_missing_package_is_named(whole, monkeypatch, cli):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    done = cli("export", whole.path, "--to", "onnx")
    assert done.returncode == 2
    assert b"pip install 'heedful[onnx]'" in done.stderr
