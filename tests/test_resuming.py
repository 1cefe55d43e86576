"""Resuming a training after a signal, a kill, a full disk or damage leaves no trace of the interruption."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from heedful import workflows
from heedful.core.errors import InputError
from heedful.core.storage import locked, read_checked
from heedful.data.examples import TranslationExamples
from heedful.runs.run import WEIGHTS, Run
from heedful.tasks.translate import Translate, TranslationValidator
from heedful.tasks.translation_data import corpora, plan_batches
from heedful.training.monitor import Monitor
from heedful.training.signals import Interrupted
from heedful.training.trainer import _difference
from heedful.workflows import Training
from tests.conftest import SLOW_ON_TENSORFLOW, change, quiet


def last_arrays(run):
    return run.checkpoints.read_last()[0]


def assert_same_state(one, other):
    first, second = last_arrays(one), last_arrays(other)
    assert first.keys() == second.keys()
    seeds = [array for name, array in first.items() if "seed" in name]
    assert len(seeds) == 7  # the state includes dropout seeds, which have advanced: dropout was on
    assert all(seed[1] >= 6 for seed in seeds)
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


@pytest.mark.parametrize("accumulate", [pytest.param(1, marks=pytest.mark.slow), 2])
@SLOW_ON_TENSORFLOW
def test_n_updates_and_n_after_resuming_equal_2n_updates(config, tmp_path, accumulate):
    """Checks bitwise, with dropout on, that weights, optimizer, dropout seeds and data order all continue."""
    config = change(config, "--train.accumulate_batches", str(accumulate), "--train.label_smoothing", "0.1")
    whole = workflows.train(config, tmp_path / "whole", quiet)
    workflows.train(change(config, "--train.updates", "3"), tmp_path / "parts", quiet)
    parts = workflows.resume(tmp_path / "parts", quiet, config)
    assert_same_state(whole, parts)
    assert parts.config.data.several_sentences == whole.config.data.several_sentences  # measured, not in the recipe
    updates = [entry["update"] for entry in parts.log.read()]
    assert updates == [3, 6]


@pytest.mark.slow
@pytest.mark.any_backend
def test_resuming_drops_log_entries_after_the_last_state(whole):
    """Guards against logging the lost updates twice after a kill between two states."""
    want = last_arrays(whole)
    whole.checkpoints.paths()[-1].unlink()
    resumed = workflows.resume(whole.path, quiet)
    for name, array in last_arrays(resumed).items():
        np.testing.assert_array_equal(array, want[name])
    assert [entry["update"] for entry in whole.log.read()] == [3, 6]
    samples = (whole.path / "samples.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in samples if line.startswith("update ")] == ["update 3", "update 6"]


@pytest.mark.any_backend
@pytest.mark.slow
def test_resuming_a_run_that_was_never_saved_starts_from_update_0(config, tmp_path, whole):
    """Guards against a run that cannot be resumed after a kill between its creation and its first state."""
    made = Training.create(config, tmp_path / "made", quiet)
    assert made.run.never_saved()
    assert_same_state(whole, workflows.resume(tmp_path / "made", quiet))
    for state in whole.checkpoints.paths():
        state.write_bytes(b"damaged")
    with pytest.raises(InputError, match="holds no training state to resume from"):
        workflows.resume(whole.path, quiet)  # states were lost, which must be reported


@pytest.mark.any_backend
@pytest.mark.parametrize("gone", ["files", "folder"])
def test_resuming_weights_without_a_state_is_refused(whole, gone):
    """Checkpoints are large, so users delete them before they share a run."""
    for state in whole.checkpoints.paths():
        state.unlink()
    if gone == "folder":
        (whole.path / "state").rmdir()
    before = whole.weights_fingerprint()
    with pytest.raises(InputError, match="holds no training state to resume from"):
        workflows.resume(whole.path, quiet)
    assert whole.weights_fingerprint() == before


@pytest.mark.any_backend
@pytest.mark.slow
def test_settings_changed_before_the_first_state_are_kept(config, tmp_path):
    """Guards against a second resume that continues with other batches than the first."""
    run = Training.create(config, tmp_path / "made", quiet).run
    changed = change(run.config, "--data.batch_sentences", "4", "--train.updates", "3")
    workflows.resume(tmp_path / "made", quiet, changed, origins={"data.batch_sentences": "command line, on resuming"})
    assert Run.open(tmp_path / "made").config == changed
    assert Run.open(tmp_path / "made").origins()["data.batch_sentences"] == "command line, on resuming"


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_samples_file_cut_inside_a_character_can_be_resumed(config, tmp_path):
    run = workflows.train(change(config, "--train.updates", "3"), tmp_path / "run", quiet)
    samples = run.path / "samples.txt"
    samples.write_bytes(samples.read_bytes() + "update 9\ná".encode()[:-1])
    workflows.resume(run.path, quiet, config)
    heads = [line for line in samples.read_text(encoding="utf-8").splitlines() if line.startswith("update ")]
    assert heads == ["update 3", "update 6"]


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_replay_finds_and_names_a_difference_of_one_bit(config, tmp_path, whole):
    """A replay without a difference continues from the saved state; it needs two states."""
    workflows.train(change(config, "--train.updates", "3"), tmp_path / "parts", quiet)
    said = []
    assert_same_state(whole, workflows.resume(tmp_path / "parts", said.append, config, verify=True))
    assert any(line.startswith("replayed updates 1 to 3: ") for line in said)
    arrays, progress = whole.checkpoints.read_last()
    name = max(name for name in arrays if "kernel" in name)
    arrays[name] = np.nextafter(arrays[name], np.float32(9))
    whole.checkpoints.save(arrays, progress, 5)
    with pytest.raises(InputError, match=f"updates 4 to 6 gave a different result: {name} differs by"):
        workflows.resume(whole.path, quiet, verify=True)
    (tmp_path / "parts" / "state" / "00000000.safetensors").unlink()
    (tmp_path / "parts" / "state" / "00000003.safetensors").unlink()
    with pytest.raises(InputError, match="fewer than two training states"):
        workflows.resume(tmp_path / "parts", quiet, verify=True)


@pytest.mark.any_backend
@pytest.mark.slow  # the test of the command line covers this
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_the_state_and_says_how_to_resume(config, tmp_path, number, monkeypatch, whole):
    fetch = TranslationExamples.batch
    calls = []

    def batch(self, index):
        calls.append(index)
        if len(calls) == 4:
            os.kill(os.getpid(), number)
        return fetch(self, index)

    with monkeypatch.context() as patch:
        patch.setattr(TranslationExamples, "batch", batch)
        with pytest.raises(Interrupted, match=r"Continue with: heedful train --resume .*stopped") as stop:
            workflows.train(config, tmp_path / "stopped", quiet)
    assert stop.value.signal_number == number
    assert 0 < Run.open(tmp_path / "stopped").checkpoints.read_last()[1]["update"] < 6
    assert_same_state(whole, workflows.resume(tmp_path / "stopped", quiet))


@pytest.mark.any_backend
@pytest.mark.parametrize("update", [3, pytest.param(6, marks=pytest.mark.slow)])
def test_a_signal_at_an_intervals_end_loses_no_validation(config, tmp_path, update, monkeypatch, whole):
    """Covers a middle interval and the last one; the best state may be the one that was just reached."""
    ended = Monitor.on_train_batch_end

    def on_train_batch_end(self, batch, logs=None):
        if self.batch_number == update - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        ended(self, batch, logs)

    with monkeypatch.context() as patch:
        patch.setattr(Monitor, "on_train_batch_end", on_train_batch_end)
        with pytest.raises(Interrupted):
            workflows.train(config, tmp_path / "stopped", quiet)
    stopped = workflows.resume(tmp_path / "stopped", quiet)
    assert_same_state(whole, stopped)
    assert [entry["update"] for entry in stopped.log.read()] == [3, 6]
    assert stopped.weights_fingerprint() == whole.weights_fingerprint()


@pytest.mark.any_backend
def test_states_saved_by_a_signal_are_removed_later(config, tmp_path):
    """Guards the average of the last states, which must not depend on signals."""
    run = Training.create(config, tmp_path / "run", quiet).run
    kept = []
    for update in (0, 3, 6, 7, 8, 9, 11, 12, 13):
        run.checkpoints.save({"x": np.zeros(1)}, {"update": update}, keep=2, every=3)
        kept.append([int(path.stem) for path in run.checkpoints.paths()])
    assert kept == [[0], [0, 3], [3, 6], [3, 6, 7], [3, 6, 8], [6, 9], [6, 9, 11], [9, 12], [9, 12, 13]]


@pytest.mark.any_backend
def test_a_folder_in_use_is_left_alone(config, whole):
    path = whole.path
    with locked(path):
        for begin in (lambda: workflows.resume(path, quiet), lambda: workflows.train(config, path, quiet, force=True)):
            with pytest.raises(InputError, match="is in use by process"):
                begin()
    assert len(whole.checkpoints.paths()) == 3
    whole.load_model()


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_truncated_log_is_read_up_to_its_last_whole_line(whole):
    log = whole.path / "log.jsonl"
    log.write_bytes(log.read_bytes()[:-5])
    assert [entry["update"] for entry in whole.log.read()] == [3]
    whole.checkpoints.paths()[-1].unlink()
    workflows.resume(whole.path, quiet)
    assert [entry["update"] for entry in whole.log.read()] == [3, 6]


@pytest.mark.any_backend
def test_a_truncated_state_falls_back_to_the_one_before(whole):
    newest = whole.checkpoints.paths()[-1]
    want = last_arrays(whole)
    newest.write_bytes(newest.read_bytes()[:-100])
    said = []
    resumed = workflows.resume(whole.path, said.append)
    assert any("falling back to the state before" in line for line in said)
    for name, array in last_arrays(resumed).items():
        np.testing.assert_array_equal(array, want[name])


@pytest.mark.any_backend
def test_a_full_disk_keeps_the_last_state(config, whole, monkeypatch):
    before = last_arrays(whole)
    (whole.path / "config.json").write_text(change(config, "--train.updates", "9").to_json(), encoding="utf-8")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    kept = r"the last state, .*00000006.safetensors, is whole. A state takes [\d,]{6,} bytes, and 5 are kept"
    with pytest.raises(InputError, match=f"No space left on device; {kept}"):
        workflows.resume(whole.path, quiet)
    monkeypatch.undo()
    after = last_arrays(whole)
    assert not list(whole.path.rglob("*.part"))
    for name in before:
        np.testing.assert_array_equal(before[name], after[name])


@pytest.mark.slow
@pytest.mark.any_backend
def test_resuming_may_change_select_by_but_not_accumulation(config, tmp_path):
    config = change(config, "--train.accumulate_batches", "2", "--train.select_by", "bleu")
    run = workflows.train(config, tmp_path / "run", quiet)
    with pytest.raises(InputError, match=r"train\.accumulate_batches = 2 and must keep it"):
        workflows.resume(run.path, quiet, change(config, "--train.accumulate_batches", "4"))
    by_loss = change(config, "--train.select_by", "loss", "--train.updates", "8", "--train.validate_every", "2")
    progress = workflows.resume(run.path, quiet, by_loss).checkpoints.read_last()[1]
    assert progress["best"] > 1  # a loss in nats; the best BLEU was lower
    assert progress["best_update"] == 8


@pytest.mark.any_backend
@pytest.mark.slow
def test_a_finished_run_keeps_its_weights_when_select_by_changes(config, tmp_path):
    """Guards against replacing the best weights by the last ones when no validation follows."""
    config = change(config, "--train.select_by", "bleu", "--train.learning_rate", "0.5")
    run = workflows.train(config, tmp_path / "run", quiet)
    before, progress = run.weights_fingerprint(), run.checkpoints.read_last()[1]
    resumed = workflows.resume(run.path, quiet, change(config, "--train.select_by", "loss"))
    assert resumed.weights_fingerprint() == before
    after = resumed.checkpoints.read_last()[1]
    assert after["best_update"] == progress["best_update"]
    assert after["select_by"] == "loss"
    loss = next(entry["valid_loss"] for entry in run.log.read() if entry["update"] == progress["best_update"])
    assert after["best"] == pytest.approx(loss, rel=1e-4)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "setting",
    [
        ("--tokenizer.joint", "false", "--model.tie", "none"),
        ("--tokenizer.kind", "char"),
        ("--model.num_heads", "4"),
        ("--model.positions", "rotary"),
        ("--data.corpus", "reverse", "--data.train", "[]", "--data.valid", "[]", "--data.test", "[]"),
        ("--train.init_from", "elsewhere"),
        ("--data.protected", '["all"]'),
        ("--data.terms", "0.4"),
    ],
    ids=lambda setting: setting[0],
)
def test_settings_that_define_a_run_cannot_change_on_resume(whole, setting):
    """Guards against a config that no longer describes the weights and the vocabulary."""
    before = (whole.path / "config.json").read_bytes()
    with pytest.raises(InputError, match=rf"was created with {setting[0][2:]} = .*, which has to stay"):
        workflows.resume(whole.path, quiet, change(whole.config, *setting))
    assert (whole.path / "config.json").read_bytes() == before


@pytest.mark.any_backend
def test_dropout_cannot_be_switched_off_on_resume(whole):
    """The seeds of dropout are part of the training state."""
    with pytest.raises(InputError, match=r"created with model\.dropout = 0\.2, which cannot change from or to 0"):
        workflows.resume(whole.path, quiet, change(whole.config, "--model.dropout", "0"))


@pytest.mark.slow
def test_raising_updates_on_resume_keeps_the_planned_batches(config, tmp_path):
    """The plan weighs compile time against the number of updates, but must not change once it is in use."""
    options = ("--data.corpus", "phrasebook", "--data.train", "[]", "--data.valid", "[]", "--data.test", "[]")
    options += ("--data.batch_sentences", "0", "--data.batch_tokens", "1024", "--data.max_shapes", "10")
    config = change(config, *options, "--train.updates", "500")
    lengths = np.random.default_rng(0).integers(5, 33, (2, 4000))

    def shapes(config):
        return [shape.sentences for shape in plan_batches(config, lengths).shapes]

    longer = change(config, "--train.updates", "20000")
    assert shapes(config) != shapes(longer)
    kept, _ = Translate().prepare(config, corpora(config))
    assert shapes(change(kept, "--train.updates", "20000")) == shapes(kept) == shapes(config)


@pytest.mark.any_backend
def test_a_run_of_an_older_version_keeps_its_batches(whole):
    """Its config.json lacks `planned_updates`: the batches were planned for its `updates`."""
    table = json.loads((whole.path / "config.json").read_text())
    assert table["data"].pop("planned_updates") == 6
    (whole.path / "config.json").write_text(json.dumps(table))
    workflows.resume(whole.path, quiet, change(Run.open(whole.path).config, "--train.updates", "7"))
    assert Run.open(whole.path).config.data.planned_updates == 6


def test_difference_is_0_only_for_identical_bits():
    """Guards the exactness of a replay; even the sign of zero counts."""
    array = np.array([0.0, 2.0], "float32")
    nan = array * np.nan
    assert _difference(array, array.copy()) == _difference(nan, nan.copy()) == 0
    for other in (np.array([-0.0, 2.0], "float32"), array + np.float32(1e-6), array.astype("float64"), nan):
        assert _difference(array, other) > 0


@pytest.mark.slow
def test_the_kill_benchmark_finds_everything_that_it_patches():
    """Runs in a process of its own, because `watch` patches what it watches."""
    code = "from benchmarks import kills; kills.watch(print, None)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.any_backend
def test_other_data_is_refused_on_resume(config, whole, text_files):
    (whole.path / "config.json").write_text(config.to_json(), encoding="utf-8")  # refers to the files changed below
    for path in text_files:
        path.write_text(path.read_text(encoding="utf-8") * 2, encoding="utf-8")
    with pytest.raises(InputError, match="The training text has changed"):
        workflows.resume(whole.path, quiet)


@pytest.mark.slow
@pytest.mark.any_backend
def test_other_validation_text_selects_anew(config, tmp_path, corpus, whole):
    """Guards against a best state that was selected on another text, and a change from scores on another text."""
    other = tmp_path / "valid.tsv"
    other.write_text("".join(f"{source}\t{target}\n" for source, target in corpus))
    config = change(config, "--data.valid", f'["{other}"]', "--train.select_by", "loss",
                    "--train.init_from", str(whole.path))  # fmt: skip
    assert "start" in workflows.train(config, tmp_path / "adapted", quiet).checkpoints.read_last()[1]
    other.write_text("o gato bebe\tthe king\n" * 3)
    said = []
    run = workflows.resume(tmp_path / "adapted", said.append, change(config, "--train.updates", "9"))
    assert any("The validation text has changed: the best weights are chosen anew" in line for line in said)
    progress = run.checkpoints.read_last()[1]
    assert progress["best"] == run.log.read()[-1]["valid_loss"]
    assert "start" not in progress
    assert not any("change by this training" in line for line in said)


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_training_killed_before_its_first_validation_resumes_from_its_last_state(config, tmp_path, monkeypatch):
    """The state of a minute is exact, and the final weights are those of a training that was never killed."""
    config = change(config, "--train.updates", "8", "--train.validate_every", "8", "--train.save_minutes", "1e-9")
    whole = workflows.train(change(config, "--train.save_minutes", "0"), tmp_path / "whole", quiet)
    assert [path.stem for path in whole.checkpoints.paths()] == ["00000000", "00000008"]
    training = Training.create(config, tmp_path / "killed", quiet)
    batch = training.examples.batch

    def failing(number):
        if number == 6:
            raise RuntimeError("killed")
        return batch(number)

    monkeypatch.setattr(training.examples, "batch", failing)
    with pytest.raises(Exception, match="killed"):
        training.train()
    killed = Run.open(tmp_path / "killed")
    saved = [int(path.stem) for path in killed.checkpoints.paths()]
    assert saved[0] == 0
    assert 3 <= saved[-1] <= 6
    assert len(saved) == 2  # the states of earlier minutes are deleted
    assert not (killed.path / WEIGHTS).exists()
    resumed = workflows.resume(killed.path, quiet)
    one, other = (run.checkpoints.read_last()[0] for run in (whole, resumed))
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    before, after = (read_checked(run.weights_path())[0] for run in (whole, resumed))
    for name in before:
        np.testing.assert_array_equal(before[name], after[name])


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("validation", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_a_training_killed_in_a_validation_repeats_it(config, tmp_path, monkeypatch, validation):
    """Guards against a validation that is skipped, and older weights that are kept: its update was saved before it."""
    config = change(config, "--train.updates", "6", "--train.validate_every", "3", "--train.save_minutes", "1e-9",
                    "--train.select_by", "loss")  # fmt: skip
    whole = workflows.train(config, tmp_path / "whole", quiet)
    training = Training.create(config, tmp_path / "killed", quiet)
    validate, calls = TranslationValidator.__call__, []

    def failing(self):
        calls.append(1)
        if len(calls) == validation - 1:
            raise RuntimeError("killed")
        return validate(self)

    monkeypatch.setattr(TranslationValidator, "__call__", failing)
    with pytest.raises(RuntimeError, match="killed"):
        training.train()
    monkeypatch.undo()
    resumed = workflows.resume(tmp_path / "killed", quiet)
    entries, resumed_entries = whole.log.read(), resumed.log.read()
    assert [entry["update"] for entry in resumed_entries] == [3, 6]
    for entry, again in zip(entries, resumed_entries, strict=True):
        assert again["valid_loss"] == entry["valid_loss"]
        assert again["first_update"] >= entry["first_update"]
        if again["first_update"] == entry["first_update"]:
            assert again["loss"] == entry["loss"]
    assert [entry["first_update"] for entry in entries] == [1, 4]
    before, after = (read_checked(run.weights_path())[0] for run in (whole, resumed))
    for name in before:
        np.testing.assert_array_equal(before[name], after[name], err_msg=name)
