"""A run folder: what it holds, and what is refused."""

import json
import shutil

import numpy as np
import pytest

from heedful import workflows
from heedful.config import Config
from heedful.config.recipes import find_recipe
from heedful.core.errors import InputError
from heedful.runs.run import Run
from heedful.runs.weights import load_weights, weights_by_name
from tests.conftest import change, quiet


@pytest.mark.slow
def test_a_run_trained_in_bfloat16_loads_in_bfloat16(config, tmp_path):
    run = workflows.train(change(config, "--train.precision", "bfloat16"), tmp_path / "run", quiet)
    assert all(entry["loss"] < 10 for entry in run.log.read())
    assert run.load_model().compute_dtype == "bfloat16"


@pytest.mark.any_backend
def test_a_run_folder_holds_every_expected_file(trained, whole):
    names = {path.name for path in whole.path.iterdir()}
    assert names >= {"config.json", "source.tokenizer.json", "target.tokenizer.json", "model.safetensors", "state",
                     "log.jsonl", "samples.txt", "scores.json", "tensorboard", "curves.png"}  # fmt: skip
    recipe = Config.from_toml(trained / "translate.toml")
    assert whole.config.train.select_by in ("bleu", "chrf")  # the text decides
    options = ("--data.planned_updates", "6", "--train.select_by", whole.config.train.select_by)
    assert whole.config == change(recipe, *options, "--data.several_sentences", "0.0")
    assert list((whole.path / "tensorboard").glob("events.*"))
    scores = json.loads((whole.path / "scores.json").read_text())[-1]
    assert scores["signatures"]["bleu"].startswith("nrefs:1|case:mixed")
    assert {"data_fingerprint", "tokenizer_fingerprints", "decode", "command", "hardware", "version"} <= scores.keys()
    assert scores["weights_fingerprint"] == whole.weights_fingerprint()
    assert (whole.path / f"{scores['outputs']}.txt").read_text(encoding="utf-8").count("\n") == 20
    assert "overlap: 20 rows" in (whole.path / "examination.txt").read_text(encoding="utf-8")


@pytest.mark.any_backend
def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="is a folder, but no run folder, and is not one of the recipes"):
        find_recipe(tmp_path)


@pytest.mark.any_backend
def test_a_run_of_another_task_is_refused(whole):
    assert whole.of_task("generate", "translate") is whole
    with pytest.raises(InputError, match="is a run of task 'translate'; this needs one of task fill or classify"):
        whole.of_task("fill", "classify")


@pytest.mark.any_backend
def test_a_config_that_asks_for_a_much_larger_model_is_refused_before_it_is_built(whole, tmp_path):
    """Guards against a config from elsewhere that would fill the memory."""
    copy = shutil.copytree(whole.path, tmp_path / "copy")
    table = json.loads((copy / "config.json").read_text())
    table["model"] |= {"d_model": 32_000, "d_ff": 64_000}
    (copy / "config.json").write_text(json.dumps(table))
    for refused in (lambda run: run.load_model(), lambda run: run.refuse_larger_than()):
        with pytest.raises(InputError, match="numbers, such a model has more than"):
            refused(Run.open(copy))


@pytest.mark.any_backend
def test_weights_that_do_not_fit_are_named(whole):
    model = whole.build_model()
    arrays = weights_by_name(model)
    name = min(arrays)
    with pytest.raises(InputError, match=f"file does not fit the run's config: it lacks 1 weights, '{name}'"):
        load_weights(model, {other: array for other, array in arrays.items() if other != name}, "file")
    with pytest.raises(InputError, match="it has unknown 1 weights, 'other'"):
        load_weights(model, arrays | {"other": arrays[name]}, "file")
    with pytest.raises(InputError, match=f"{name} is .*, expected"):
        load_weights(model, arrays | {name: arrays[name][:-1]}, "file")
    with pytest.raises(InputError, match=f"{name} holds values that are not numbers"):
        load_weights(model, arrays | {name: arrays[name] * np.nan}, "file")
    for unchanged, array in weights_by_name(model).items():
        np.testing.assert_array_equal(array, arrays[unchanged])


@pytest.mark.any_backend
def test_the_fingerprint_is_that_of_the_weights_that_were_loaded(whole, tmp_path):
    """Guards a score against a training that saves better weights while the score is computed."""
    run = Run.open(shutil.copytree(whole.path, tmp_path / "copy"))
    loaded, model = run.weights_fingerprint(), run.load_model()
    other = Run.open(run.path)
    other.save_weights({name: array + 1 for name, array in weights_by_name(model).items()})
    assert other.weights_fingerprint() != loaded
    assert run.weights_fingerprint() == loaded
