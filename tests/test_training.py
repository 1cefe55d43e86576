"""Training learns, reports its progress, keeps the best weights and stops when it must."""

import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from heedful import backend, workflows
from heedful.config import Config
from heedful.errors import InputError
from heedful.run import WEIGHTS
from heedful.storage import read_checked
from heedful.tasks.task import SCORED_TOKENS
from heedful.tasks.translate import TranslationValidator
from heedful.tasks.translation_data import scored_pairs
from heedful.training import meter
from heedful.training.tensorboard import TensorBoardWriter
from heedful.workflows import Training
from tests.conftest import change, quiet


@pytest.mark.any_backend
def test_training_does_not_delete_foreign_files(config, tmp_path):
    """The folder is not a run, and holds files that a training would overwrite."""
    (tmp_path / "mine" / "outputs").mkdir(parents=True)
    files = [tmp_path / "mine" / name for name in ("scores.json", "model.safetensors", "outputs/mine.csv")]
    for path in files:
        path.write_text("mine")
    with pytest.raises(InputError, match=r"mine holds no run, but .*, which a training would overwrite"):
        workflows.train(config, tmp_path / "mine", quiet)
    assert [path.read_text() for path in files] == ["mine"] * 3
    workflows.train(change(config, "--train.updates", "1"), tmp_path / "mine", quiet, force=True)
    assert files[2].read_text() == "mine"


@pytest.mark.any_backend
def test_progress_shows_in_a_log_file(config, tmp_path, monkeypatch, capsys):
    """Without a terminal on standard error, an occasional line replaces the progress bar."""
    monkeypatch.setattr(meter, "SILENCE", 0.0)
    workflows.train(config, tmp_path / "run", quiet)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("update")]
    assert [line.split("  ")[-2].split()[-3:] for line in lines][-1] == ["6", "of", "6"]


@pytest.mark.any_backend
@pytest.mark.parametrize(("free", "told"), [(1000, True), (10**12, False)])
def test_training_warns_at_the_start_if_disk_space_is_short(config, tmp_path, monkeypatch, free, told):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    said = []
    workflows.train(change(config, "--train.updates", "1"), tmp_path / "run", said.append)
    assert any(line.startswith("Low disk space: ") and line.endswith(" 1,000 are free.") for line in said) == told


def test_a_loss_that_is_not_a_number_stops_training_and_names_the_update(config, tmp_path):
    config = change(
        config, "--train.learning_rate", "1e38", "--train.warmup_updates", "0", "--model.norm_position", "pre"
    )
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


@pytest.mark.any_backend
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
    job.train()
    assert any(line.startswith("Stopped after 1e-09 minutes (train.minutes), at update 0 of 6") for line in said)
    assert (tmp_path / "run" / WEIGHTS).exists()


def test_a_run_trained_in_bfloat16_loads_in_bfloat16(config, tmp_path):
    run = workflows.train(change(config, "--train.precision", "bfloat16"), tmp_path / "run", quiet)
    assert all(entry["loss"] < 10 for entry in run.log.read())
    assert run.load_model().compute_dtype == "bfloat16"


@pytest.mark.any_backend
def test_a_run_folder_holds_every_expected_file(trained, whole):
    names = {path.name for path in whole.path.iterdir()}
    assert names >= {"config.json", "source.tokenizer.json", "target.tokenizer.json", "model.safetensors", "state",
                     "log.jsonl", "samples.txt", "scores.json", "tensorboard", "curves.png"}  # fmt: skip
    assert whole.config == change(Config.from_toml(trained / "translate.toml"), "--data.planned_updates", "6")
    assert list((whole.path / "tensorboard").glob("events.*"))
    scores = json.loads((whole.path / "scores.json").read_text())[-1]
    assert scores["signatures"]["bleu"].startswith("nrefs:1|case:mixed")
    assert {"data_fingerprint", "tokenizer_fingerprints", "decode", "command", "hardware", "version"} <= scores.keys()
    assert scores["weights_fingerprint"] == whole.weights_fingerprint()
    assert (whole.path / f"{scores['outputs']}.txt").read_text(encoding="utf-8").count("\n") == 20
    assert "overlap: 20 rows" in (whole.path / "examination.txt").read_text(encoding="utf-8")


@pytest.mark.any_backend
def test_vocabulary_comes_from_training_text_alone(config, tmp_path):
    """Guards against words of validation or test text in the vocabulary."""
    for side, name in enumerate(("valid.pt", "valid.en")):
        (tmp_path / name).write_text(("o lobo uiva", "the wolf howls")[side] + "\n", encoding="utf-8")
    files = f'["{tmp_path / "valid.pt"}", "{tmp_path / "valid.en"}"]'
    job = Training.create(change(config, "--data.valid", files), tmp_path / "run", quiet)
    assert job.run.source_tokenizer.lookup("lobo") is None
    assert job.run.source_tokenizer.lookup("gato") is not None


@pytest.mark.any_backend
def test_training_can_memorise_twenty_sentences(config, tmp_path):
    config = change(
        config, "--train.updates", "400", "--train.validate_every", "400", "--model.dropout", "0.0",
        "--model.norm_position", "pre", "--train.label_smoothing", "0.0", "--model.d_model", "32",
        "--train.learning_rate", "3e-3",
    )  # fmt: skip
    run = workflows.train(config, tmp_path / "run", quiet)
    scores = json.loads((run.path / "scores.json").read_text())[-1]
    assert scores["exact"] == 1.0
    assert scores["bleu"] > 99


@pytest.mark.slow
def test_the_reverse_recipe_solves_the_reversal_puzzle(tmp_path):
    """Like the Annotated Transformer's puzzle; at least 99 % of unseen sequences must be exactly right."""
    from heedful.recipes import find_recipe

    run = workflows.train(Config.from_toml(find_recipe("reverse")), tmp_path / "run", quiet)
    assert json.loads((run.path / "scores.json").read_text())[-1]["exact"] >= 0.99


def test_training_and_validation_log_the_same_kind_of_loss(config, tmp_path):
    """Guards the log: heedful 0.1.0 logged the training loss with label smoothing, validation without."""
    settings = ["--model.dropout", "0", "--train.label_smoothing", "0.4", "--train.select_by", "loss"]
    settings += ["--train.updates", "150", "--train.validate_every", "30"]
    run = workflows.train(change(config, *settings), tmp_path / "run", quiet)
    entry = run.log.read()[-1]  # validation and training use the same text
    assert entry["loss"] == pytest.approx(entry["valid_loss"], rel=0.25)
    assert entry["smoothed_loss"] > 1.5 * entry["valid_loss"]
    assert entry["perplexity"] == pytest.approx(np.exp(entry["loss"]), rel=1e-3)
    plain = workflows.train(change(config, "--train.label_smoothing", "0"), tmp_path / "plain", quiet)
    assert "smoothed_loss" not in plain.log.read()[-1]


@pytest.mark.any_backend
def test_used_and_available_devices_are_reported_in_one_line(config, trained, tmp_path):
    """Guards against devices that stay unused without a word."""
    said = []
    workflows.train(change(config, "--train.updates", "1"), tmp_path / "run", said.append)
    assert f"devices: 1 of 1 used (cpu), backend {backend.NAME}" in said
    environment = os.environ | {"KERAS_BACKEND": "jax", "XLA_FLAGS": "--xla_force_host_platform_device_count=3"}
    command = [sys.executable, "-m", "heedful", "translate", trained / "run"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, input="o gato\n")
    assert done.stderr == "heedful: devices: 1 of 3 used (cpu), backend jax\n"
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.any_backend
def test_tensorboard_reads_what_the_board_wrote(tmp_path):
    for update in (3, 6):  # as after resuming: two files of one run
        with contextlib.closing(TensorBoardWriter(tmp_path / "board")) as board:
            board.write(update, {"loss": 0.5 * update, "valid_bleu": 7})
    reader = EventAccumulator(str(tmp_path / "board"))
    reader.Reload()
    assert sorted(reader.Tags()["scalars"]) == ["loss", "valid_bleu"]
    assert [(event.step, event.value) for event in reader.Scalars("loss")] == [(3, 1.5), (6, 3.0)]


@pytest.mark.any_backend
def test_a_training_on_jax_does_not_load_tensorflow(recipe, tmp_path):
    """Guards against seconds and 400 MB spent on it wherever it is installed."""
    code = "import sys; from heedful.cli import main; main(sys.argv[1:]); sys.exit('tensorflow' in sys.modules)"
    arguments = ["train", recipe, "--run", tmp_path / "run", "--train.updates", "3", "--train.precision", "bfloat16"]
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, env=os.environ | {"KERAS_BACKEND": "jax"})
    assert list((tmp_path / "run" / "tensorboard").iterdir())


@pytest.mark.any_backend
def test_scoring_batches_are_limited_by_scored_tokens(whole, corpus):
    """The last batch of each shape is padded to full size: at the size of training, it would be mostly padding."""
    whole.config = change(whole.config, "--data.batch_tokens", "100000")
    examples = scored_pairs(whole, corpus)
    assert all(
        examples.shape(n)[0] * max(examples.shape(n)[1:]) <= SCORED_TOKENS for n in examples.first_of_each_shape()
    )
