"""The self-check on the command line; `tests/mutations` tests that it finds faults."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import heedful
from heedful.config import Config, ModelConfig
from heedful.core.plugins import find_task
from heedful.runs.run import Run
from heedful.workflows.selfcheck import check, learning
from tests.mutations import faults

pytestmark = pytest.mark.any_backend


@pytest.fixture
def few_checks(monkeypatch):
    """Run only some of the checks, to save time."""
    monkeypatch.setattr(check, "CHECKS", [one for one in check.CHECKS if one.name in ("future", "alone", "loss_falls")])


def test_training_refuses_to_start_on_a_fault(recipe, cli, monkeypatch, tmp_path, few_checks):
    with monkeypatch.context() as planted:
        faults.causal_mask_dropped(planted)
        refused = cli("train", recipe, "--run", "run", "--train.check", "true")
    assert refused.returncode == 2
    assert b"FAILED  future      no position sees what comes after it: measured" in refused.stderr
    assert b"Look at layers/masks.py" in refused.stderr
    assert b"--train.check false --force" in refused.stderr
    assert not (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.slow
def test_the_check_command_checks_trained_weights(recipe, cli):
    trained = cli("train", recipe, "--run", "run", "--train.check", "true")
    assert b"self-check: 15 checks passed" in trained.stdout
    done = cli("check", "run")
    assert done.returncode == 0, done.stdout
    lines = done.stdout.decode().splitlines()
    assert all(line.startswith("ok ") for line in lines[:-1])
    assert lines[-1].startswith("14 of 14 checks passed, on the run's own weights")


@pytest.mark.slow
def test_a_fault_gives_exit_code_1(run, cli, monkeypatch, few_checks):
    faults.texts_of_a_batch_mix(monkeypatch)
    done = cli("check", "run", "--json")
    assert done.returncode == 1
    rows = {row["check"]: row for row in json.loads(done.stdout)}
    assert not rows["alone"]["passed"]
    assert rows["alone"]["measured"] > rows["alone"]["allowed"]
    assert rows["future"]["passed"]


@pytest.mark.slow
def test_the_check_does_not_change_the_training(recipe, cli, tmp_path, few_checks):
    """The same weights, states and dropout seeds with it as without."""
    for name, value in (("with", "true"), ("without", "false")):
        assert cli("train", recipe, "--run", name, "--train.check", value).returncode == 0
    first, second = (Run.open(tmp_path / name).checkpoints.read_last()[0] for name in ("with", "without"))
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def test_a_negligible_dropout_is_not_reported_as_missing():
    """Users set dropout to 1e-9 to end it, since it cannot change to 0; it then drops nothing of a batch."""
    settings = ModelConfig(dropout=1e-9)
    subject = SimpleNamespace(
        task=find_task("translate"), frozen=(), run=SimpleNamespace(config=Config(model=settings))
    )
    assert learning.dropout(subject) == (0.0, 0.0)


def test_values_that_are_not_finite_become_null_in_json():
    finding = check.Finding(check.CHECKS[0], np.inf, np.nan)
    assert not finding.passed
    assert json.loads(json.dumps(finding.as_dict(), allow_nan=False))["allowed"] is None


def test_a_failed_check_names_files_that_exist():
    """Guards against a file that was renamed: heedful 0.1.0 named some by their old places."""
    package = Path(heedful.__file__).parent
    for one in check.CHECKS:
        for name in re.findall(r"[a-z_]+/(?:[a-z_]+\.py)?|(?<!/)\b[a-z_]+\.py", one.where):
            assert (package / name).exists(), (one.name, name)
