"""Every engine computes the same as Keras with every choice of every option, or names it as a misfit.

The page's engine is compared in a browser, with every value that it declares: tests/page/test_engine.py.
"""

import dataclasses

import numpy as np
import pytest

from heedful import backend
from heedful.config import DecodeConfig, ModelConfig
from heedful.config.architecture import DROPOUTS, Architecture, choices
from heedful.config.decode import MISSING, SAME
from heedful.config.model import DEPTHS
from heedful.core.errors import InputError
from heedful.inspection.page.contents import require_page
from heedful.interop.engines import ANY_VALUE, CTRANSLATE2, ONNX, PAGE
from heedful.interop.export import ctranslate2, huggingface, onnx
from heedful.interop.export.ctranslate2_search import ctranslate2 as library
from heedful.interop.export.onnx_session import Session
from heedful.interop.pretrained.architectures import LAYOUTS
from heedful.runs.weights import weights_by_name
from tests.conftest import fast
from tests.test_huggingface import logits_of_both, opened, random_run
from tests.test_onnx import called, exported, padded

pytestmark = pytest.mark.any_backend

SMALL = {"num_layers": 2, "d_model": 24, "num_heads": 4, "d_ff": 20, "max_length": 40}
# Another value of each option that is not one of several words.
OTHERS = {
    "num_layers": 1, "encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 12,
    "head_dim": 10, "num_kv_heads": 2, "causal_mask": False, "qk_norm": True,
    "norm_epsilon": 1e-2, "residual_init": 0.5, "bias": False, "rotary_base": 300.0, "embedding_norm": True,
    "embedding_scale": False, "embedding_std": 0.5, "output_bias": True, "max_length": 30,
    **dict.fromkeys(DROPOUTS, 0.3),
}  # fmt: skip
# Models that have what some classes of transformers need, each varied by one option too.
BASES = {
    "translate": [{}],
    "generate": [{"norm_position": "pre", "positions": "learned"},
                 {"norm_position": "pre", "positions": "rotary", "norm": "rms", "activation": "swiglu"},
                 {"norm_position": "pre", "positions": "rotary", "norm": "rms", "activation": "swiglu", "bias": False,
                  "qk_norm": True}],
    "fill": [{"positions": "learned", "embedding_norm": True, "activation": "gelu", "output_bias": True, "tie": "all"}],
    "classify": [{"positions": "learned", "embedding_norm": True, "pooling": "first"}],
}  # fmt: skip
VARIED = [(name, value) for name in OTHERS for value in [OTHERS[name]]]
VARIED += [
    (field.name, value) for field in dataclasses.fields(Architecture) for value in choices(field.name)
]  # fmt: skip
CASES = [
    (task, base | {name: value}) for task, bases in BASES.items() for base in bases for name, value in VARIED
    if task == "translate" or name not in DEPTHS
]  # fmt: skip
TOLERANCE = 1e-3


def test_every_option_and_every_choice_is_crossed():
    """Guards against a new option that no engine is tried with."""
    seen = {name for name, _ in VARIED}
    assert {field.name for field in dataclasses.fields(Architecture)} == seen
    assert {name for engine in (ONNX, PAGE, CTRANSLATE2) for name in engine.values} <= {
        field.name for field in dataclasses.fields(ModelConfig)
    }
    assert {field.name for field in dataclasses.fields(ModelConfig)} >= ANY_VALUE


@pytest.mark.parametrize("case", fast(CASES, 2))
def test_onnx_computes_the_same_or_names_the_misfit(tmp_path, case, rng):
    task, options = case
    run = random_run(tmp_path, task, SMALL | options)
    if misfits := ONNX.misfits(run.config.model):
        refused(lambda: onnx.graphs(run), misfits)
        return
    model, session = run.load_model(), Session(exported(run, tmp_path))
    ids, mask = padded([rng.integers(4, 250, length).tolist() for length in (9, 5)])
    if task == "translate":
        target = rng.integers(4, 250, (2, 7))
        memory = session.run("encoder_model", {"input_ids": ids, "attention_mask": mask})["last_hidden_state"]
        fixed = {"encoder_attention_mask": mask, "encoder_hidden_states": memory}
        found, expected = called(session, "decoder_model_merged", target, [4, 3], fixed), logits(model, ids, target)
    elif task == "generate":
        whole = rng.integers(4, 250, (2, 9))
        found, expected = called(session, "model", whole, [5, 4], {}), logits(model, whole)
    else:
        found = session.run("model", {"input_ids": ids, "attention_mask": mask})["logits"]
        expected = logits(model, ids)
        if task == "fill":
            found, expected = found[mask.astype(bool)], expected[mask.astype(bool)]
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)


@pytest.mark.parametrize("options", fast([options for task, options in CASES if task == "translate"], 1))
def test_ctranslate2_computes_the_same_or_names_the_misfit(tmp_path, options, rng):
    run = random_run(tmp_path, "translate", SMALL | options)
    if misfits := CTRANSLATE2.misfits(run.config.model):
        refused(lambda: ctranslate2.export(run, tmp_path / "ct2"), misfits)
        return
    ctranslate2.export(run, tmp_path / "ct2")
    source, target = (rng.integers(4, 250, (2, length)) for length in (6, 5))
    translator = library().Translator(str(tmp_path / "ct2"), device="cpu", intra_threads=1)
    spelled = [
        [[tokenizer.lookup(i) for i in row] for row in rows]
        for tokenizer, rows in ((run.source_tokenizer, source), (run.target_tokenizer, target))
    ]
    found = [result.log_probs for result in translator.score_batch(*spelled)]
    ends, starts = np.full((2, 1), 3), np.full((2, 1), 2)
    expected = logits(run.load_model(), np.hstack([source, ends]), np.hstack([starts, target]))
    expected = expected - np.log(np.exp(expected).sum(-1, keepdims=True))
    wanted = np.take_along_axis(expected, np.hstack([target, ends])[..., None], -1)[..., 0]
    np.testing.assert_allclose(np.array(found), wanted, atol=TOLERANCE)


@pytest.mark.parametrize("case", fast(CASES, 1))
def test_transformers_computes_the_same_or_names_the_misfit(tmp_path, case, numpy):
    task, options = case
    run = random_run(tmp_path, task, SMALL | options)
    model = run.load_model()
    misfits = [
        layout.misfits(run.config, weights_by_name(model))
        for layout in LAYOUTS.values()
        if isinstance(model, layout.models)
    ]
    if all(misfits):
        refused(lambda: huggingface.export(run, tmp_path / "out"), min(misfits, key=len))
        return
    huggingface.export(run, tmp_path / "out")
    ours, theirs = logits_of_both(run, opened(tmp_path / "out")[1], numpy)
    np.testing.assert_allclose(ours, theirs, atol=TOLERANCE, rtol=1e-3)


def test_a_choice_that_is_declared_nowhere_is_refused_by_all(whole, tmp_path):
    """Guards an activation that is added to the architecture alone: it gave a `KeyError`, and a broken page."""
    keras_model, model = whole.build_model(), dataclasses.replace(whole.config.model)
    object.__setattr__(model, "activation", "undeclared")
    whole.config = dataclasses.replace(whole.config, model=model)
    for attempt in (
        lambda: onnx.graphs(whole), lambda: ctranslate2.export(whole, tmp_path / "ct2"),
        lambda: huggingface.fitting_layout(whole, keras_model, {}), lambda: require_page(whole),
    ):  # fmt: skip
        refused(attempt, ["model.activation = 'undeclared'"])


def refused(attempt, misfits):
    with pytest.raises(InputError) as error:
        attempt()
    assert all(setting in str(error.value) for setting in misfits)
    assert "\n" not in str(error.value)


def logits(model, *inputs):
    arrays = tuple(np.asarray(one, np.int32) for one in inputs)
    return np.asarray(backend.to_numpy(model(arrays if len(arrays) > 1 else arrays[0])), np.float32)


def test_every_decoding_setting_says_what_other_engines_call_it():
    """Guards a setting that an export loses without a word: a new one is refused, or passed on, by its declaration."""
    transformers = pytest.importorskip("transformers")
    fields = dataclasses.fields(DecodeConfig)
    names = {engine: {field.metadata[engine] for field in fields} for engine in ("transformers", "ctranslate2")}
    known = transformers.GenerationConfig().to_dict() | {"min_p": None, "suppress_tokens": None}
    assert names["transformers"] - {SAME, MISSING} <= known.keys()
    for name in names["ctranslate2"] - {SAME, MISSING}:
        assert f"{name}:" in library().Translator.translate_batch.__doc__
    changed = {"min_ratio": 0.5, "coverage_penalty": 0.1, "length_norm": "gnmt"}
    assert DecodeConfig(beam_size=4, **changed).lacking("transformers") == changed
    assert DecodeConfig(beam_size=4, min_ratio=0.5).lacking("marian") == {"min_ratio": 0.5}
    assert set(DecodeConfig(beam_size=4).called_in("marian")) == {"beam-size", "normalize", "max-length-factor"}
    assert DecodeConfig(**changed).lacking("ctranslate2", scored=False) == {"min_ratio": 0.5}
    assert DecodeConfig(min_p=0.1).lacking("ctranslate2") == {}
    assert DecodeConfig(sample=True, min_p=0.1).lacking("ctranslate2") == {"min_p": 0.1}
    sampled = DecodeConfig(sample=True, top_p=0.9).called_in("transformers")
    assert (sampled["do_sample"], sampled["top_p"], sampled["num_beams"]) == (True, 0.9, 1)
