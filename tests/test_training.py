"""Training learns, reports its progress, keeps the best weights and stops when it must."""

import contextlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from heedful import backend, workflows
from heedful.config import Config
from heedful.core.errors import InputError
from heedful.tasks.task import SCORED_TOKENS
from heedful.tasks.translation_data import scored_pairs
from heedful.training.tensorboard import TensorBoardWriter
from heedful.workflows import Training
from tests.conftest import change, quiet


@pytest.mark.slow
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
def test_a_run_that_another_process_begins_meanwhile_is_kept(config, tmp_path, monkeypatch):
    """Reading the text takes minutes, in which the same command may begin elsewhere."""
    path, prepared = tmp_path / "run", Training.prepared

    def late(*arguments, **options):
        training = prepared(*arguments, **options)
        path.mkdir()
        (path / "config.json").write_text("of the other process")
        return training

    monkeypatch.setattr(Training, "prepared", late)
    with pytest.raises(InputError, match="already holds a run"):
        workflows.train(config, path, quiet)
    assert (path / "config.json").read_text() == "of the other process"


@pytest.mark.any_backend
def test_a_folder_that_was_begun_and_not_finished_is_free(config, tmp_path, monkeypatch):
    """Guards a training that is killed before its config is written: the same command must work again."""
    with monkeypatch.context() as patch:
        patch.setattr(Config, "to_json", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            workflows.train(config, tmp_path / "run", quiet)
    assert (tmp_path / "run" / "origins.json").exists()
    workflows.train(change(config, "--train.updates", "1"), tmp_path / "run", quiet)


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
@pytest.mark.slow
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
    from heedful.config.recipes import find_recipe

    run = workflows.train(Config.from_toml(find_recipe("reverse")), tmp_path / "run", quiet)
    assert json.loads((run.path / "scores.json").read_text())[-1]["exact"] >= 0.99


@pytest.mark.slow
@pytest.mark.any_backend
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
@pytest.mark.slow
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


@pytest.mark.slow
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
