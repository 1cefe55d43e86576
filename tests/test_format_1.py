"""Runs, recipes and models of heedful 0.1.0 (format 1): tests/data/run_of_0.1.0 was written by it.

`expected.json` holds the results of heedful 0.1.0: translations with their scores (`translate --beam-size 2
--scores`), and the log of the training after it was resumed to update 40, in which `loss` was the smoothed loss.
"""

import json
import shutil
from pathlib import Path

import pytest

import heedful
from heedful import workflows
from heedful.config import Config
from heedful.config.settings import override
from heedful.core.errors import InputError, InputWarning
from heedful.runs.run import Run
from heedful.runs.scores.provenance import newest_scores

FOLDER = Path(__file__).parent / "data" / "run_of_0.1.0"
EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A copy of the run, with `HEEDFUL_DATA` set to the folder of its text."""
    monkeypatch.setenv("HEEDFUL_DATA", str(FOLDER / "text"))
    return Run.open(shutil.copytree(FOLDER / "run", tmp_path / "run"))


@pytest.mark.any_backend
def test_old_setting_names_become_the_current_ones(run):
    config = run.config
    assert (config.model.norm_position, config.model.norm) == ("pre", "rms")
    assert (config.train.accumulate_batches, config.train.select_by, config.train.init_from) == (2, "loss", "")
    assert config.format == 2
    assert Config.from_toml(FOLDER / "recipe.toml").model == config.model


@pytest.mark.any_backend
def test_translations_and_scores_are_the_same(run):
    lines = (FOLDER / "text" / "test.pt").read_text(encoding="utf-8").splitlines()
    translator = heedful.load(run.path)
    found = [candidates[0] for candidates in translator.n_best(lines, beam_size=2)]
    assert [text for text, _ in found] == [text for text, _ in EXPECTED["translations"]]
    assert [score for _, score in found] == pytest.approx([score for _, score in EXPECTED["translations"]], abs=1e-3)
    [before] = newest_scores(run).values()
    now = run.task.evaluate(run, run.task.find_corpora(run.config)["test"], translator)
    for name in ("loss", "bleu", "accuracy"):
        assert now[name] == pytest.approx(before[name], rel=1e-4)


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_resumed_training_continues_as_with_heedful_0_1_0(run):
    """Not bit for bit, since processors differ; benchmarks/same_bits.py compares bits on one machine."""
    config = override(run.config, ["--train.updates", "40"])
    resumed = workflows.resume(run.path, lambda line: None, config)
    log = {str(entry["update"]): entry for entry in resumed.log.read()}
    for update, scores in EXPECTED["resumed"].items():
        assert {name: log[update][name] for name in scores} == pytest.approx(scores, rel=2e-2)
    assert resumed.checkpoints.read_last()[1]["select_by"] == "loss"
    assert json.loads((run.path / "config.json").read_text())["model"]["norm_position"] == "pre"


@pytest.mark.any_backend
def test_recipes_are_read_with_and_without_a_format(tmp_path):
    old = 'task = "classify"\n[model]\nnorm = "pre"\n[train]\nstart_from = "x"\nbest_by = "loss"\naccumulate = 3\n'
    for text in (old, "format = 1\n" + old):
        (tmp_path / "old.toml").write_text(text)
        config = Config.from_toml(tmp_path / "old.toml")
        assert (config.model.norm_position, config.model.norm) == ("pre", "layer")
        assert (config.train.init_from, config.train.select_by, config.train.accumulate_batches) == ("x", "loss", 3)
    (tmp_path / "new.toml").write_text('[model]\nnorm = "rms"\n')
    assert Config.from_toml(tmp_path / "new.toml").model.norm == "rms"
    with pytest.raises(InputError, match="unknown key 'norm_kind'"):
        Config.from_table({"format": 2, "model": {"norm_kind": "rms"}}, "test")


@pytest.mark.any_backend
def test_an_old_name_on_the_command_line_says_the_new_one():
    with pytest.raises(InputError, match=r"--train.best_by is now called --train.select_by"):
        override(Config(), ["--train.best_by", "loss"])


@pytest.mark.any_backend
def test_a_puzzle_of_0_1_0_keeps_its_rule(tmp_path):
    (tmp_path / "config.json").write_text('{"format": 1, "data": {"corpus": "reverse"}}')
    with pytest.warns(InputWarning, match="this run learned the puzzle of heedful 0.1.0"):
        config = Config.from_json(tmp_path / "config.json")
    assert config.data.repeats_counted_in == "output"


def test_a_saved_model_of_0_1_0_is_loaded():
    sizes = {"vocab_size": 11, "num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
    model = heedful.CausalLM.from_config(sizes | {"norm": "pre", "norm_kind": "rms"})
    assert (model.architecture.norm_position, model.architecture.norm) == ("pre", "rms")
