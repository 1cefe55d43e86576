"""The export to CTranslate2: the same translations and scores from both engines, for every option of the model."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest

from heedful import backend
from heedful.config import Config, DataConfig, DecodeConfig, ModelConfig
from heedful.core.errors import InputError
from heedful.core.processors import cores
from heedful.core.special_tokens import END_ID
from heedful.data.tokenizer import Tokenizer
from heedful.inference.translator import Translator
from heedful.runs.run import Run
from tests.conftest import PAIRS, fast, quiet

pytest.importorskip("ctranslate2")

from heedful.interop.export import parity
from heedful.interop.export.ctranslate2 import FORMAT, export
from heedful.interop.export.ctranslate2_search import (
    CTranslate2Model,
    CTranslate2Search,
    ctranslate2,
    ctranslate2_translator,
)

pytestmark = pytest.mark.any_backend

OPTIONS = [
    {},
    {"norm_position": "pre", "positions": "sinusoidal_concatenated", "activation": "gelu", "tie": "none"},
    {"positions": "learned", "embedding_norm": True, "activation": "geglu", "num_kv_heads": 2},
    {"positions": "rotary", "norm_position": "pre", "activation": "swiglu"},
]


@pytest.fixture
def make_run(tmp_path):
    def make(**options):
        model = {"num_layers": 2, "d_model": 24, "num_heads": 6, "d_ff": 20, "max_length": 19} | options
        decode = DecodeConfig(batch_size=3, forbidden=("[PAD]", "[START]"))
        config = Config(data=DataConfig(max_tokens=19), model=ModelConfig(**model), decode=decode)
        tokenizer = Tokenizer.train((text for pair in PAIRS for text in pair), "word", 60)
        run = Run.create(tmp_path / "run", config, tokenizer, tokenizer)
        model = run.build_model()
        for weight in model.trainable_weights:  # varied texts, and norms and biases unlike their initial values
            noise = np.random.default_rng(0).normal(size=weight.shape) * 0.1
            weight.assign(backend.to_numpy(weight) * (2.0 if "kernel" in weight.path else 1.5) + noise)
        run.save_model(model)
        return run

    return make


def checked(run, folder, number, *arguments, **options):
    """Export a run, checked on the first pairs."""
    sources, references = zip(*PAIRS[:number], strict=True)
    return parity.export_checked(run, FORMAT, folder, sources, references, *arguments, **options)


@pytest.mark.parametrize("options", fast(OPTIONS, 1))
def test_both_engines_translate_alike(make_run, tmp_path, options):
    run, said = make_run(**options), []
    results = checked(run, tmp_path / "ct2", 10, report=said.append)
    assert [result["search"] for result in results] == ["greedy", "beam 4"]
    assert all(result["identical"] == 1 for result in results)
    assert json.loads((tmp_path / "ct2" / "parity.json").read_text()) == results
    made = ctranslate2_translator(run, folder=tmp_path / "ct2").translate([source for source, _ in PAIRS[:10]])
    assert len(set(made)) > 2


@pytest.mark.parametrize(("beam_size", "scored", "made"), [(1, False, False), (1, True, True), (2, False, True)])
def test_scores_are_computed_only_where_needed(make_run, tmp_path, beam_size, scored, made):
    """Guards fair timings: our greedy search without scores must not be compared with one that computes them."""
    run, asked = make_run(), []
    decode = dataclasses.replace(run.config.decode, beam_size=beam_size, stop="attainable")
    exported = CTranslate2Model(run, export(run, tmp_path / "ct2"))
    translate = exported.translator(sampling=False).translate_batch
    exported.translator = lambda *which: SimpleNamespace(
        translate_batch=lambda *texts, **options: asked.append(options["return_scores"]) or translate(*texts, **options)
    )
    ((candidate,),) = CTranslate2Search(exported, decode, scored)([run.source_tokenizer.encode(PAIRS[0][0])])
    assert asked == [made]
    assert candidate.ids
    assert (candidate.score < 0) == made


@pytest.mark.slow
def test_decode_settings_without_a_counterpart_do_not_prevent_an_export(make_run, tmp_path):
    run = make_run()
    run.config = dataclasses.replace(
        run.config, decode=dataclasses.replace(run.config.decode, min_ratio=0.5, min_p=0.1)
    )
    assert len(checked(run, tmp_path / "ct2", 4, report=quiet)) == 2


@pytest.mark.slow
def test_a_wrong_export_does_not_pass(make_run, tmp_path, monkeypatch):
    """Guards against silent errors, here positions that are off by one; an earlier export stays unchanged."""
    run = make_run()
    from heedful.interop.export import ctranslate2 as module

    export(run, tmp_path / "ct2")
    before = {path.name: path.read_bytes() for path in (tmp_path / "ct2").iterdir()}
    shifted = vars(np) | {"arange": lambda length: np.arange(length) + 1}
    monkeypatch.setattr(module, "np", SimpleNamespace(**shifted))
    with pytest.raises(InputError, match="CTranslate2 does not compute what heedful does"):
        checked(run, tmp_path / "ct2", 10, report=quiet)
    assert {path.name: path.read_bytes() for path in (tmp_path / "ct2").iterdir()} == before
    with pytest.raises(InputError, match="the export was not kept"):
        checked(run, tmp_path / "new", 10, report=quiet)
    assert [path.name for path in tmp_path.iterdir() if "ct2" in path.name or "new" in path.name] == ["ct2"]


def test_an_export_refuses_a_folder_with_other_files(make_run, tmp_path):
    run = make_run()
    export(run, tmp_path / "ct2")
    (tmp_path / "ct2" / "source.tokenizer.json").write_text("{}")
    for again in (export, lambda *where: checked(*where, 4, report=quiet)):
        with pytest.raises(InputError, match=r"contains source\.tokenizer\.json, which heedful did not export"):
            again(run, tmp_path / "ct2")
    assert (tmp_path / "ct2" / "source.tokenizer.json").read_text() == "{}"


def test_an_unknown_quantization_is_refused_before_any_comparison(make_run, tmp_path):
    said = []
    with pytest.raises(InputError, match=r"Exports for CTranslate2 have --quantization float32, .*, not 'int-8'"):
        checked(make_run(), tmp_path / "ct2", 4, "int-8", report=said.append)
    assert not said
    assert not (tmp_path / "ct2").exists()


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"beam_size": 3, "n_best": 3}, {}, {"length_penalty": 0.6}])
def test_both_engines_normalize_scores_by_the_same_length(make_run, tmp_path, options):
    """Guards length normalization: greedy scores of CTranslate2 are sums, those of beams are normalised."""
    run = make_run()
    model = run.load_model()
    table = np.array(backend.to_numpy(model.target_embedding.embeddings))
    table[END_ID] *= 3  # so that most results end
    model.target_embedding.embeddings.assign(table)
    run.save_model(model)
    sources = [run.source_tokenizer.encode(source) for source, _ in PAIRS]
    export(run, tmp_path / "ct2")
    engines = Translator.from_run(run), ctranslate2_translator(run, folder=tmp_path / "ct2")
    ours, theirs = (engine.search_with(True, max_length=18, max_ratio=99.0, **options)(sources) for engine in engines)
    same = 0
    for candidates, others in zip(ours, theirs, strict=True):
        assert [score for _, score in others] == sorted((score for _, score in others), reverse=True)
        scores = {tuple(ids): score for ids, score in others}
        for ids, score in candidates:
            if tuple(ids) in scores:
                same += 1
                assert scores[tuple(ids)] == pytest.approx(score, abs=1e-3)
    assert same > len(sources) * options.get("n_best", 1) // 2
    assert sum(len(candidates[0].ids) < 18 for candidates in ours) > len(sources) // 2


def test_the_same_seed_gives_the_same_samples(make_run, tmp_path):
    """By itself, CTranslate2 applies only the first seed."""
    run = make_run()
    export(run, tmp_path / "ct2")
    translator, lines = ctranslate2_translator(run, folder=tmp_path / "ct2"), ["o gato bebe"] * 5
    first, other, again = (translator.translate(lines, sample=True, seed=seed) for seed in (3, 4, 3))
    assert first == again != other
    twice = list(translator.predict_stream(lines * 60, sample=True, batch_size=1))
    assert twice[:50] != twice[50:100]  # consecutive windows that the translator reads


def test_a_model_is_opened_once_for_all_settings(make_run, tmp_path, monkeypatch):
    """Guards the speed of a server: opening a model for every few texts took a tenth of its time."""
    run, opened = make_run(), []
    export(run, tmp_path / "ct2")
    module = ctranslate2()
    open_model = module.Translator
    monkeypatch.setattr(module, "Translator", lambda *a, **b: opened.append(b["inter_threads"]) or open_model(*a, **b))
    translator = ctranslate2_translator(run, folder=tmp_path / "ct2")
    for options in ({}, {}, {"beam_size": 2}, {"max_length": 5}):
        assert translator.translate(["o gato bebe"], **options)
    assert opened == [cores()]
    translator.translate(["o gato bebe"], sample=True)
    assert opened == [cores(), 1]


@pytest.mark.slow
def test_parity_of_int8_is_reported(make_run, tmp_path):
    run = make_run()
    results = checked(run, tmp_path / "ct2", 4, "int8", report=quiet)
    assert [result["quantization"] for result in results] == ["float32", "float32", "int8", "int8"]


def test_mistakes_in_exports_are_explained(make_run, tmp_path):
    run = make_run()
    with pytest.raises(InputError, match="holds no CTranslate2 model"):
        ctranslate2_translator(run).translate("o gato")
    with pytest.raises(InputError, match="not 'int3'"):
        export(run, tmp_path / "ct2", "int3")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("keep me")
    with pytest.raises(InputError, match=r"contains letter\.txt, which heedful did not export"):
        export(run, tmp_path / "full")
    export(run, tmp_path / "ct2")
    for unknown in ({"sample": True, "min_p": 0.1}, {"precision": "int8"}, {"beam_size": 2, "stop": "width"},
                    {"sample": True, "n_best": 2, "top_k": 1}):  # fmt: skip
        decode = dataclasses.replace(run.config.decode, **unknown)
        with pytest.raises(InputError, match=rf"CTranslate2 does not support decode.{list(unknown)[-1]}"):
            CTranslate2Search(CTranslate2Model(run, tmp_path / "ct2"), decode)
    translator = ctranslate2_translator(run, folder=tmp_path / "ct2")
    with pytest.raises(InputError, match=r"CTranslate2 does not support decode\.length_norm = 'gnmt'"):
        translator.n_best(["o gato"], length_norm="gnmt")
    with pytest.raises(InputError, match="'wolf' is not a token of the vocabulary"):
        translator.translate("o gato", forbidden=("wolf",))
    with pytest.raises(
        InputError, match="The prefix of line 2 has 2 tokens; this source's translation may have at most 2"
    ):
        list(translator.predict_stream(["o gato"] * 2, prefixes=["", "the cat"], max_length=2))
    assert translator.translate("o gato", min_length=15)  # capped at the maximum length for this source
    assert len(translator.translate(["o gato"], sample=True, top_k=9000)) == 1
    export(run, tmp_path / "ct2")  # its own folder may be written again
    run.save_model(run.build_model())
    with pytest.raises(InputError, match="was exported from other weights"):
        CTranslate2Model(run, tmp_path / "ct2")


def test_a_model_and_a_folder_are_refused_before_text_is_read(make_run, tmp_path, cli):
    command = ["export", make_run(positions="none").path, "--to", "ctranslate2", "--files", "missing.tsv"]
    assert b"CTranslate2 cannot compute this model" in cli(*command).stderr
    command[1] = fitting = make_run().path
    (fitting / "ctranslate2").symlink_to(tmp_path)
    assert b"outside its folder" in cli(*command).stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_dim": 5}, r"has no model\.head_dim other than d_model / num_heads"),
        ({"attention_projections": "output"}, r"has no model\.attention_projections = 'output'"),
        ({"positions": "none"}, r"CTranslate2 cannot compute this model: it has no model\.positions = 'none'"),
    ],
)
def test_options_that_ctranslate2_lacks_are_refused_by_name(make_run, tmp_path, options, message):
    run = make_run(**options)
    with pytest.raises(InputError, match=message):
        checked(run, tmp_path / "ct2", 4)
    assert not (tmp_path / "ct2").exists()
