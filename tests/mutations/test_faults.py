"""The self-check reports every planted fault by name, and none in a sound run."""

import dataclasses

import pytest

from heedful.config import Config
from heedful.config.settings import override
from heedful.core.plugins import find_task
from heedful.runs.run import Run
from heedful.workflows import Training
from heedful.workflows.selfcheck.check import CHECKS, check
from tests.mutations.faults import FAULTS

pytestmark = pytest.mark.any_backend

# Command-line settings for options of a fault; all other options are settings of the model.
SETTINGS = {
    "accumulate_batches": ["--train.accumulate_batches", "2"],
    "many": ["--data.mask_share", "0.6"],
    "frozen": ["--model.tie", "target", "--tokenizer.joint", "false"],
    "shared": ["--data.pack_tokens", "17"],
    "packed": ["--data.packing", "documents", "--data.documents", "lines"],
}


@pytest.fixture
def checked(recipe_of, tmp_path):
    """Check a small run of a task; return its findings."""

    def run_check(task, only=None, **options):
        config = Config.from_toml(recipe_of(task))
        for name, value in options.items():
            config = override(config, SETTINGS.get(name, [f"--model.{name}", str(value).lower()]))
        config, tokenizers = find_task(task).prepare(config, find_task(task).find_corpora(config))
        if "frozen" in options:  # `init_from` is not loaded here: fresh weights are frozen too
            config = dataclasses.replace(config, train=dataclasses.replace(config.train, freeze=True, init_from="run"))
        training = Training(Run(tmp_path / "run", config, *tokenizers), report=lambda line: None)
        return check(training.run, training.examples.batch(0), training.frozen, only=only)

    return run_check


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("translate", {"frozen": True, "accumulate_batches": True, "num_kv_heads": 1}),
        pytest.param(
            "translate", {"shared": True, "positions": "learned", "norm_position": "pre"}, marks=pytest.mark.slow
        ),
        pytest.param(
            "generate",
            {"packed": True, "norm_position": "pre", "positions": "rotary", "tie": "none"},
            marks=pytest.mark.slow,
        ),
        ("fill", {"accumulate_batches": True, "feed_forward_dropout": 0.3, "dropout": 0.0}),
        ("classify", {"positions": "learned", "dropout": 0.0, "bias": False}),
    ],
)
def test_a_sound_run_passes(checked, task, options):
    findings = checked(task, **options)
    assert [str(finding) for finding in findings if not finding.passed] == []
    expected = {check.name for check in CHECKS if find_task(task).writes or not check.writing}
    expected.discard("adapters")  # tested in test_adapters.py
    for option, name in (("packed", "documents"), ("shared", "pairs")):
        if option not in options:
            expected.discard(name)
    assert {finding.check.name for finding in findings} == expected


def each_fault():
    """Yield the faults as parameters; all but the first case of each fault are marked slow."""
    seen = set()
    for plant, name, task, options in FAULTS:
        marks = [pytest.mark.slow] if plant in seen else []
        seen.add(plant)
        yield pytest.param(plant, name, task, options, id=f"{plant.__name__}-{task}", marks=marks)


@pytest.mark.parametrize(("plant", "name", "task", "options"), list(each_fault()))
def test_every_fault_is_found(monkeypatch, checked, plant, name, task, options):
    plant(monkeypatch)
    (finding,) = checked(task, only=(name,), **options)
    assert not finding.passed
    assert str(finding).startswith(f"FAILED  {name}")


def test_there_are_more_than_twenty_faults():
    assert len({plant for plant, *_ in FAULTS}) > 20
