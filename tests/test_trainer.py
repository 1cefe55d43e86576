"""The trainer: when it stops, which weights it keeps, and what it reports."""

import dataclasses
import itertools
import json
import math
import shutil
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from heedful import backend, workflows
from heedful.core.errors import InputError
from heedful.core.storage import read_checked
from heedful.runs.run import WEIGHTS, Run
from heedful.tasks.translate import TranslationValidator
from heedful.training import loss, meter
from heedful.training.ahead import prepared_ahead
from heedful.training.constant_guess import constant_loss
from heedful.training.selection import Selection
from heedful.workflows import Training
from tests.conftest import change, quiet


@pytest.mark.slow
@pytest.mark.any_backend
def test_progress_shows_in_a_log_file(config, tmp_path, monkeypatch, capsys):
    """Without a terminal on standard error, an occasional line replaces the progress bar."""
    monkeypatch.setattr(meter, "NOTE_INTERVAL", 0.0)
    workflows.train(config, tmp_path / "run", quiet)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("update")]
    assert [line.split("  ")[-2].split()[-3:] for line in lines][-1] == ["6", "of", "6"]


@pytest.mark.any_backend
@pytest.mark.parametrize(("free", "told"), [(1000, True), pytest.param(10**12, False, marks=pytest.mark.slow)])
def test_training_warns_at_the_start_if_disk_space_is_short(config, tmp_path, monkeypatch, free, told):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    said = []
    workflows.train(change(config, "--train.updates", "1"), tmp_path / "run", said.append)
    assert any(line.startswith("Low disk space: ") and line.endswith(" 1,000 are free.") for line in said) == told


def test_a_loss_that_is_not_a_number_stops_training_and_names_the_update(config, tmp_path):
    config = change(
        config, "--train.schedule", "paper", "--train.learning_rate", "1e38", "--train.warmup_updates", "0",
        "--model.norm_position", "pre",
    )  # fmt: skip
    with pytest.raises(InputError, match=r"no longer finite at update \d+\. The state of update 0 is kept"):
        workflows.train(config, tmp_path / "run", quiet)


def test_a_validation_loss_of_nan_stops_training_and_keeps_no_weights(config, tmp_path, monkeypatch):
    """Guards against a best score of NaN, which no later score can beat."""
    monkeypatch.setattr(TranslationValidator, "__call__", lambda self: {"loss": math.nan})
    with pytest.raises(InputError, match=r"no longer finite at update 2\. The state of update 0 is kept"):
        workflows.train(
            change(config, "--train.select_by", "loss", "--train.validate_every", "2"), tmp_path / "run", quiet
        )
    assert not (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.slow
@pytest.mark.any_backend
def test_training_stops_when_patience_runs_out(config, tmp_path):
    config = change(
        config, "--train.learning_rate", "1e-30", "--train.patience", "2", "--train.updates", "50",
        "--train.validate_every", "1", "--train.select_by", "loss",
    )  # fmt: skip
    said = []
    run = workflows.train(config, tmp_path / "run", said.append)
    assert run.checkpoints.read_last()[1]["update"] == 3  # the first is the best; patience allows two more
    assert any("stopping early" in line for line in said)


@pytest.mark.any_backend
@pytest.mark.parametrize(("scores", "wins"), [([1, 2, 3, 4, 5, 6, 7], True), ([7, 6, 5, 4, 3, 2, 1], False)])
def test_the_average_of_the_last_states_is_kept_if_it_is_better(config, tmp_path, monkeypatch, scores, wins):
    waiting = iter(scores)
    monkeypatch.setattr(
        TranslationValidator, "__call__", lambda self: {"loss": 1.0, "bleu": next(waiting), "chrf": 1.0}
    )
    config = change(config, "--train.validate_every", "1", "--train.keep", "2", "--train.average", "2")
    run = workflows.train(config, tmp_path / "run", quiet)
    assert [path.stem for path in run.checkpoints.paths()] == ["00000005", "00000006"]
    states = [read_checked(path)[0] for path in run.checkpoints.paths()]
    saved, _ = read_checked(run.path / WEIGHTS)
    names = {name: name.split("/", 2)[2] for name in states[0] if name.split("/", 2)[2] in saved}
    assert len(names) == len(saved)
    for name, short in names.items():
        mean = (states[0][name].astype("float64") + states[1][name]) / 2
        assert np.allclose(saved[short], mean, atol=1e-7) == wins, name


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.any_backend
def test_epochs_are_counted_in_updates_and_resumed_by_the_same_plan(config, tmp_path):
    config = change(config, "--train.epochs", "1.5", "--train.accumulate_batches", "2", "--train.validate_every", "100")
    said = []
    training = Training.create(config, tmp_path / "run", said.append)
    updates = round(1.5 * training.examples.batches_per_epoch / 2)
    assert f"1.5 epochs are {updates} updates" in said
    assert training.config.train.updates == updates != config.train.updates
    assert json.loads((tmp_path / "run" / "origins.json").read_text())["train.updates"] == "counted, from train.epochs"
    run = training.train()
    assert run.log.read()[-1]["update"] == updates
    again = Training(Run.open(run.path), quiet)
    assert again.config == training.config
    assert str(again.examples) == str(training.examples)
    with pytest.raises(InputError, match=r"train.updates is counted from train.epochs = 1.5: set train.epochs instead"):
        workflows.resume(
            run.path, quiet, change(run.config, "--train.updates", "1000"), origins={"train.updates": "command line"}
        )
    assert workflows.resume(run.path, quiet, config).config == run.config  # epochs are counted again
    longer = workflows.resume(run.path, quiet, change(run.config, "--train.epochs", "3"))
    assert longer.log.read()[-1]["update"] == round(3 * training.examples.batches_per_epoch / 2)


def test_the_log_holds_finite_numbers_only(whole):
    whole.log.append({"update": 7, "perplexity": float("inf"), "loss": 99.5, "note": "x"})
    assert whole.log.read()[-1] == {"update": 7, "loss": 99.5, "note": "x"}


@pytest.mark.slow
@pytest.mark.any_backend
def test_later_states_must_beat_a_kept_average(config, tmp_path, monkeypatch):
    """The state of update 0 is not part of the average."""
    said = []
    waiting = iter([1, 2, 9, 5, 6, 0, 1, 2])
    monkeypatch.setattr(
        TranslationValidator, "__call__", lambda self: {"loss": 1.0, "bleu": next(waiting), "chrf": 1.0}
    )
    config = change(config, "--train.validate_every", "3", "--train.average", "3")
    run = workflows.train(config, tmp_path / "run", said.append)  # 6 updates
    assert any(line.startswith("average of the last 2 states") for line in said)
    kept = (run.path / WEIGHTS).read_bytes()
    arrays = run.checkpoints.read_last()[0]
    later = workflows.resume(run.path, quiet, change(config, "--train.updates", "12"))
    assert (run.path / WEIGHTS).read_bytes() == kept
    assert any((later.checkpoints.read_last()[0][name] != arrays[name]).any() for name in arrays)
    plain = workflows.train(change(config, "--train.average", "0"), tmp_path / "plain", quiet)
    np.testing.assert_equal(arrays, plain.checkpoints.read_last()[0])  # the state holds the last weights


@pytest.mark.any_backend
def test_a_training_that_ends_before_its_first_validation_keeps_its_weights(config, tmp_path):
    job = Training.create(change(config, "--train.minutes", "1e-9"), tmp_path / "run", quiet)
    said = []
    job.report = said.append
    with pytest.raises(InputError, match=r"ended this training at update 0 of 6: .* is hardly trained"):
        job.train()
    assert any(line.startswith("Stopped after 1e-09 minutes (train.minutes), at update 0 of 6") for line in said)
    assert (tmp_path / "run" / WEIGHTS).exists()


@pytest.mark.slow
@pytest.mark.skipif(backend.NAME != "jax", reason="JAX computes while the host prepares the next batch")
@pytest.mark.parametrize("accumulate", [pytest.param("1", marks=pytest.mark.slow), "2"])
def test_a_host_that_runs_ahead_of_the_device_changes_no_bit(config, tmp_path, monkeypatch, accumulate):
    """As on a GPU: batches are prepared in a thread, and the losses of several updates are awaited together."""
    config = change(config, "--train.updates", "11", "--train.validate_every", "10")
    config = change(config, "--train.accumulate_batches", accumulate)
    monkeypatch.setattr(loss, "CHUNK", loss.ACCELERATED_CHUNK)
    usual = workflows.train(config, tmp_path / "usual", quiet)
    monkeypatch.setattr(backend, "runs_ahead", lambda: True)
    ahead = workflows.train(config, tmp_path / "ahead", quiet)
    first, second = (run.checkpoints.read_last()[0] for run in (usual, ahead))
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)
    logs = [[{"update": e["update"], "loss": e["loss"]} for e in run.log.read()] for run in (usual, ahead)]
    assert logs[0] == logs[1]
    assert [entry["update"] for entry in logs[0]] == [10, 11]


@pytest.mark.any_backend
def test_batches_prepared_ahead_keep_their_order_and_their_errors():
    def items():
        yield from range(5)
        raise InputError("no more")

    ahead = prepared_ahead(items())
    assert [next(ahead) for _ in range(5)] == list(range(5))
    with pytest.raises(InputError, match="no more"):
        next(ahead)
    assert list(prepared_ahead(iter("abc"))) == ["a", "b", "c"]
    before = threading.active_count()
    endless = prepared_ahead(itertools.count())
    assert next(endless) == 0
    endless.close()
    assert threading.active_count() == before


@pytest.mark.any_backend
def test_a_training_that_has_learned_nothing_is_no_success(whole, monkeypatch):
    """Guards against exit code 0 for a model whose every translation is one repeated token."""
    from heedful.workflows import outcome

    def batches(*labels):
        return [{"labels": np.array([row]), "weights": np.sign([row]).astype(np.float32)} for row in labels]

    training, validation = batches([5, 6, 7, 0], [5, 5, 5, 0]), batches([5, 5, 6, 8])
    guess = -(2 * math.log(5 / 10) + math.log(2 / 10) + math.log(1 / 10)) / 4  # of six labels, and one of each kind
    assert constant_loss(training, validation) == pytest.approx(guess)
    examples = SimpleNamespace(batch=training.__getitem__, tokens=lambda number: 3, batches_per_epoch=1.5)
    valid = SimpleNamespace(one_pass=lambda: iter(validation))

    def outcome_of(loss, updates):
        monkeypatch.setattr(type(whole.log), "read", lambda self: [{"update": updates, "valid_loss": loss}])
        said = []
        outcome.require_success(whole, examples, valid, said.append)
        return said

    assert outcome_of(guess - 0.01, 500) == []
    assert "the model has learned nothing from its input, in 50 updates." in outcome_of(guess + 0.01, 50)[0]
    with pytest.raises(InputError, match=rf"never came below {guess:.3f}, .* learned nothing from its input\. Look at"):
        outcome_of(guess + 0.01, 500)
    train = dataclasses.replace(whole.config.train, minutes=8.0, schedule="cosine", updates=50_000)
    with monkeypatch.context() as changed:
        changed.setattr(whole, "config", dataclasses.replace(whole.config, train=train))
        with pytest.raises(InputError, match="ended this training at update 500 of 50,000"):
            outcome_of(guess - 0.01, 500)
        outcome.require_success(whole, examples, valid, quiet, ended=True)  # planned anew, or stopped for patience
    for minutes, advice in ((0.0, r"warmup_updates\.$"), (8.0, r"warmup_updates, or set train\.schedule to cosine")):
        train = dataclasses.replace(whole.config.train, minutes=minutes, warmup_updates=4000, updates=10_000)
        monkeypatch.setattr(whole, "config", dataclasses.replace(whole.config, train=train))
        with pytest.raises(InputError, match=rf"at update 2,000, in the warm-up of 4,000 updates: shorten .*{advice}"):
            outcome_of(guess + 0.01, 2000)


@pytest.mark.parametrize(
    ("settings", "reported"),
    [
        ({}, False),
        ({"minutes": 8.0}, True),
        ({"minutes": 8.0, "schedule": "cosine"}, False),
        ({"minutes": 8.0, "minutes_of": "updates"}, False),
        ({"minutes": 8.0, "schedule": "constant", "optimizer": "schedule_free"}, False),
    ],
)
def test_a_schedule_that_ignores_the_minutes_is_reported(config, tmp_path, settings, reported):
    said = []
    config = dataclasses.replace(config, train=dataclasses.replace(config.train, **settings))
    Training.create(config, tmp_path / "run", said.append, plan_minutes=False)
    assert any("does not depend on train.minutes" in line for line in said) is reported


def test_the_constant_guess_of_several_labels_is_one_for_each_class():
    batches = [{"labels": np.array([[1, 0], [0, 0]]), "weights": np.ones((2, 1), np.float32)}]
    batches += [{"labels": np.array([[1, 0], [0, 0]]), "weights": np.zeros((2, 1), np.float32)}]
    loss = math.log(2) - math.log(3 / 4)  # one of two texts has the first class, none the second
    assert constant_loss(batches, batches, several_labels=True) == pytest.approx(loss)


@pytest.mark.any_backend
def test_of_equal_scores_the_lower_loss_is_selected(whole, monkeypatch):
    """Guards against the first of four states of a model whose BLEU cannot move, and patience that stops it."""
    said, saved = [], []
    selection = Selection(whole, None, None, None, said.append)
    monkeypatch.setattr(selection, "_save", lambda progress: saved.append(progress["best_loss"]))
    progress = {"best": None, "best_loss": None, "waited": 0}
    verdicts = [selection.consider({"bleu": 0.0, "loss": loss}, progress) for loss in (3.0, 2.0, 2.5, 1.0)]
    assert verdicts == ["best", "best", "", "best"]
    assert saved == [3.0, 2.0, 1.0]
    assert progress["waited"] == 0
    assert [line[:40] for line in said] == ["valid bleu has been 0 for 3 validations:"]
    assert selection.consider({"bleu": 1.0, "loss": 9.0}, progress) == "best"
