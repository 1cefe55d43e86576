"""Loggers: their curves have every record once, also after a training was killed and resumed."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from heedful import workflows
from heedful.core import plugins
from heedful.core.errors import InputError
from heedful.training.loggers import LOGGERS, Loggers
from tests.conftest import change, quiet

pytestmark = pytest.mark.any_backend


@pytest.fixture
def noted(monkeypatch):
    """A logger that keeps what it gets in a list, which is returned; it may be told to fail."""
    got = []

    class Noting:
        fails = loses_records = False

        def __init__(self, folder, settings, id):
            self.id = id or "first"
            got.append(("open", id, settings["train.updates"]))

        def write(self, update, scalars):
            if Noting.fails:
                raise RuntimeError("no network")
            got.append((update, scalars))

        def close(self):
            got.append(("close",))

    got.append(Noting)
    for module in ("heedful.training.loggers", "heedful.workflows.training"):
        monkeypatch.setattr(f"{module}.find_logger", lambda name: Noting)
    monkeypatch.setattr("heedful.training.progress_log.INTERVAL", 0.0)
    return got


def written(noted):
    return [entry for entry in noted[1:] if isinstance(entry[0], int)]


@pytest.mark.slow
def test_a_resumed_training_repeats_no_record(config, tmp_path, noted):
    config = change(config, "--train.loggers", '["noting"]')
    run = workflows.train(config, tmp_path / "run", quiet)
    assert any("progress/loss" in scalars for _, scalars in written(noted))
    run.checkpoints.paths()[-1].unlink()  # as if it was killed after update 6, before the state was saved
    workflows.resume(run.path, quiet, change(run.config, "--train.updates", "9"))
    for name, wanted in (("valid_loss", [3, 6, 9]), ("progress/loss", None)):
        updates = [update for update, scalars in written(noted) if name in scalars]
        assert updates == (wanted or sorted(set(updates)))
    assert [entry[1] for entry in noted[1:] if entry[0] == "open"] == [None, "first"]
    assert json.loads((run.path / LOGGERS).read_text())["noting"]["updates"]["log.jsonl"] == 9


def test_a_logger_that_fails_is_reported_once_and_left_out(tmp_path, noted):
    lines = []
    loggers = Loggers(["noting"], tmp_path, {"train.updates": 6}, lines.append)
    loggers.record({"update": 3, "loss": 2.5, "note": "text"}, "log.jsonl")
    noted[0].fails = True
    for update in (6, 9):
        loggers.record({"update": update, "loss": 1.5}, "log.jsonl")
    loggers.close()
    assert written(noted) == [(3, {"loss": 2.5})]
    noted[0].fails = False
    (tmp_path / "log.jsonl").write_text("".join(f'{{"update": {n}, "loss": 1.5}}\n' for n in (3, 6, 9)))
    Loggers(["noting"], tmp_path, {"train.updates": 6}, lines.append)  # as on resuming: it gets what it lacks
    assert written(noted)[1:] == [(6, {"loss": 1.5}), (9, {"loss": 1.5})]
    assert lines == ["The logger noting has failed, and the training continues without it: no network"]


def test_a_logger_that_cannot_start_is_left_out(tmp_path, monkeypatch):
    class Offline:
        loses_records = False

        def __init__(self, folder, settings, id):
            raise ConnectionError("no route to host")

    lines = []
    monkeypatch.setattr("heedful.training.loggers.find_logger", lambda name: Offline)
    loggers = Loggers(["offline"], tmp_path, {}, lines.append)
    loggers.record({"update": 3, "loss": 2.5}, "log.jsonl")
    loggers.close()
    assert lines == ["The logger offline has failed, and the training continues without it: no route to host"]


def test_loggers_that_are_unknown_or_not_installed_are_refused(config, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="There is no logger 'neptune'"):
        workflows.train(change(config, "--train.loggers", '["neptune"]'), tmp_path / "one", quiet)
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(InputError, match="needs a package"):
        plugins.find_logger("wandb")(tmp_path, {}, None)


def records_of_wandb(path):
    """Yield the records of an offline run, whose file is a LevelDB log after a header of 7 bytes."""
    content, place, whole = path.read_bytes(), 7, b""
    while place + 7 <= len(content):
        left = 32_768 - place % 32_768
        if left < 7:
            place += left
            continue
        length, kind = struct.unpack("<HB", content[place + 4 : place + 7])
        whole += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # the whole record, or its last piece
            yield whole
            whole = b""


def curve_of_wandb(folder):
    from wandb.proto import wandb_internal_pb2

    points = []
    for path in sorted(Path(folder).glob("wandb/offline-run-*/*.wandb")):
        for content in records_of_wandb(path):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(content)
            items = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            if "valid_loss" in items:
                points.append((int(items["_step"]), items["valid_loss"]))
    return points


def curve_of_mlflow(folder):
    from mlflow.tracking import MlflowClient

    id = json.loads((folder / LOGGERS).read_text())["mlflow"]["id"]
    return [(point.step, point.value) for point in MlflowClient().get_metric_history(id, "valid_loss")]


def curve_of_trackio(folder):
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    assert folder.name in [run.name for run in trackio.Api().runs("heedful")]
    points = SQLiteStorage.get_logs("heedful", folder.name)
    return [(point["step"], point["valid_loss"]) for point in points if "valid_loss" in point]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of the other programs
@pytest.mark.parametrize("name", ["wandb", "mlflow", "trackio"])
def test_each_tracker_reads_back_one_curve(config, recipe, tmp_path, monkeypatch, name):
    """A training of 200 updates is killed after an update that no state has, and resumed; its API reads the curve."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # before it is imported
    pytest.importorskip(name)
    folder = tmp_path / "tracked"
    settings = ["--train.loggers", f'["{name}"]', "--train.updates", "200", "--train.validate_every", "20",
                "--train.validate_sentences", "0"]  # fmt: skip
    code = (
        "import os, sys; from heedful.training.checkpoints import Checkpoints; from heedful.cli import main\n"
        "save = Checkpoints.save\n"
        "def killed(self, progress, arrays=None):\n"
        "    if progress['update'] == 120: os._exit(9)\n"
        "    return save(self, progress, arrays)\n"
        "Checkpoints.save = killed\n"
        "main(sys.argv[1:])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, "train", recipe, "--run", folder, *settings], env=os.environ,
                          check=False)  # fmt: skip
    assert done.returncode == 9
    subprocess.run([sys.executable, "-m", "heedful", "train", "--resume", folder], env=os.environ, check=True)
    curve = {"wandb": curve_of_wandb, "mlflow": curve_of_mlflow, "trackio": curve_of_trackio}[name](folder)
    assert [update for update, _ in curve] == list(range(20, 201, 20))
    want = [json.loads(line)["valid_loss"] for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [value for _, value in curve] == pytest.approx(want, rel=1e-6)
