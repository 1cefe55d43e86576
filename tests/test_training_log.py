"""The logs of a training: progress every few seconds, samples with their attention, snapshots."""

import base64
import json
import time

import numpy as np
import pytest

from heedful import backend, workflows
from heedful.core.errors import InputError
from heedful.core.special_tokens import END_ID, START_ID
from heedful.layers import Trace
from heedful.runs.run import Run
from heedful.runs.snapshots import Snapshots
from heedful.runs.training_log import PROGRESS, SAMPLE_DATA, LogTail, TrainingLog
from heedful.runs.weights import weights_by_name
from heedful.training import progress_log
from heedful.training.optimizer import Moment
from heedful.training.progress_log import ProgressLog
from tests.conftest import change, quiet

KEYS = {"update", "loss", "tokens_per_second", "learning_rate", "gradient_norm", "seconds"}


@pytest.fixture
def often(monkeypatch):
    """A line as often as possible: every second update, since a norm takes two."""
    monkeypatch.setattr(progress_log, "INTERVAL", 0.0)
    monkeypatch.setattr(progress_log, "SHARE", float("inf"))


def weights_of(run):
    return run.checkpoints.read_last()[0]


@pytest.mark.slow
@pytest.mark.any_backend
def test_progress_is_logged_and_changes_no_bit(config, tmp_path, monkeypatch):
    monkeypatch.setattr(progress_log, "INTERVAL", 1e9)
    silent = workflows.train(config, tmp_path / "silent", quiet)
    assert not silent.log.read(PROGRESS)
    monkeypatch.setattr(progress_log, "INTERVAL", 0.0)
    monkeypatch.setattr(progress_log, "SHARE", float("inf"))
    logged = workflows.train(config, tmp_path / "logged", quiet)
    entries = logged.log.read(PROGRESS)
    assert [entry["update"] for entry in entries] == [2, 5]  # validations after 3 and 6 begin anew
    assert all(entry.keys() == KEYS and entry["loss"] > 0 and entry["tokens_per_second"] > 0 for entry in entries)
    first, second = weights_of(silent), weights_of(logged)
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name], err_msg=name)


@pytest.mark.slow
@pytest.mark.any_backend
def test_the_logged_norm_is_that_of_the_gradient(config, tmp_path, often, monkeypatch):
    """Compares with clipping: a norm far above `clip_norm` is logged as exactly that."""
    run = workflows.train(change(config, "--train.clip_norm", "0.001"), tmp_path / "clipped", quiet)
    assert [entry["gradient_norm"] for entry in run.log.read(PROGRESS)] == pytest.approx([0.001] * 2, rel=1e-3)
    free = workflows.train(config, tmp_path / "free", quiet)
    assert all(entry["gradient_norm"] > 0.01 for entry in free.log.read(PROGRESS))


@pytest.mark.any_backend
def test_the_loss_of_a_line_is_that_of_its_own_updates():
    """The mean since the beginning, 3 after 10 tokens and 2 after 40, is 5/3 in the 30 tokens between."""

    class Objective:
        class optimizer:
            beta_1, variables = 0.9, ()

    class Log:
        lines = ()

        def append(self, entry, name):
            self.lines = (*self.lines, entry)

    log = ProgressLog(Log(), Objective, lambda update: 0.5, 0.0)
    log._interval = -1.0
    for update, (tokens, loss) in enumerate(((5, 4.0), (5, 3.0), (10, 2.5), (20, 2.0)), start=1):
        log.count(tokens)
        log.after_update(update, loss)
        log._interval = -1.0
    assert [(entry["update"], entry["loss"]) for entry in log.log.lines] == [(2, 3.0), (4, round(5 / 3, 5))]


@pytest.mark.any_backend
def test_waiting_for_updates_in_flight_does_not_thin_out_the_log(monkeypatch):
    """Guards against counting that wait as the time to read the moments: a long training then had a single line."""

    class Objective:
        class optimizer:
            beta_1, variables = 0.9, ()

    class Log:
        def append(self, entry, name):
            """Keep nothing."""

    waits = [0.3, 0.0, 0.0, 0.0]  # seconds until the moments of an update are there
    monkeypatch.setattr(progress_log.backend, "to_numpy", lambda moment: (time.sleep(waits.pop(0)), moment)[1])
    monkeypatch.setattr(progress_log, "INTERVAL", 0.0)
    log = ProgressLog(Log(), Objective, lambda update: 0.5, 0.0)
    log._moments = [Moment(np.zeros(3, np.float32), 0.9, 0.1)]
    for update in (1, 2):
        log.count(1)
        log._interval = -1.0
        log.after_update(update, 1.0)
    assert waits == []
    assert log._interval < 2.0  # 120 with the wait in it


@pytest.mark.slow
@pytest.mark.any_backend
def test_resuming_drops_later_lines_of_every_log(config, tmp_path, often):
    config = change(config, "--train.snapshots", "true")
    run = workflows.train(config, tmp_path / "run", quiet)
    assert [path.stem for path in run.snapshots.paths()] == ["00000000", "00000003", "00000006"]
    logs = {name: run.log.read(name) for name in (PROGRESS, SAMPLE_DATA)}
    run.checkpoints.paths()[-1].unlink()
    workflows.resume(run.path, quiet)
    for name, entries in logs.items():
        assert [entry["update"] for entry in run.log.read(name)] == [entry["update"] for entry in entries]
    assert [path.stem for path in run.snapshots.paths()] == ["00000000", "00000003", "00000006"]


@pytest.mark.any_backend
def test_samples_hold_ids_and_cross_attention(whole):
    run = Run.open(whole.path)
    last = run.log.read(SAMPLE_DATA)[-1]
    text = (run.path / "samples.txt").read_text(encoding="utf-8")
    assert last["update"] == 6
    assert last["samples"]
    model = run.build_model()
    states = run.checkpoints.read_last()[0]
    for variable in model.weights:  # the state that was validated, which need not be the best
        [array] = [a for name, a in states.items() if name.startswith("model/") and name.endswith(_short(variable))]
        variable.assign(array)
    for sample in last["samples"]:
        assert f"{sample['text']}  ->  {sample['translation']}   [{sample['reference']}]" in text
        assert run.source_tokenizer.encode(sample["text"]) == sample["source"]
        trace = Trace()
        model((np.array([[*sample["source"], END_ID]]), np.array([[START_ID, *sample["target"]]])), trace=trace)
        want = [
            backend.to_numpy(trace[f"decoder/block_{layer}/cross_attention"])[0] for layer in range(model.num_layers)
        ]
        found = np.frombuffer(base64.b64decode(sample["cross"]), np.uint8).reshape(sample["shape"]) / 255
        np.testing.assert_allclose(found, np.stack(want), atol=0.5 / 255 + 1e-5)


def _short(variable):
    return "/" + variable.path.split("/", 1)[-1]


@pytest.mark.any_backend
def test_snapshots_are_sparser_the_longer_the_training():
    due = [number for number in range(1200) if Snapshots.due(number)]
    assert due == [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]


@pytest.mark.any_backend
def test_a_snapshot_restores_the_weights_within_half_a_step(whole):
    run = Run.open(whole.path)
    weights = weights_by_name(run.load_model())
    run.snapshots.save(6, weights)
    found = run.snapshots.read(run.snapshots.paths()[-1])
    assert found.keys() == weights.keys()
    for name, array in weights.items():
        axis = None if array.ndim < 2 else (1 if name.endswith("embeddings") else 0)
        step = np.abs(array).max(axis=axis, keepdims=True) / 127 if array.ndim == 2 else 0
        assert np.all(np.abs(found[name] - array) <= step / 2 + 1e-7), name


@pytest.mark.any_backend
def test_a_language_model_logs_the_text_it_wrote(recipe_of, tmp_path):
    from heedful.config import Config

    config = change(Config.from_toml(recipe_of("generate")), "--train.updates", "3", "--train.validate_every", "3")
    run = workflows.train(config, tmp_path / "run", quiet)
    [entry] = [json.loads(line) for line in (run.path / SAMPLE_DATA).read_text(encoding="utf-8").splitlines()]
    assert entry["update"] == 3
    assert entry["samples"][0]["text"].startswith(entry["samples"][0]["prompt"])


@pytest.mark.any_backend
def test_a_log_is_followed_by_reading_what_was_added(tmp_path):
    log, tail = TrainingLog(tmp_path), LogTail(tmp_path, PROGRESS)
    assert tail.read() == []
    for update in range(1, 6):
        log.append({"update": update, "loss": 1.0}, PROGRESS)
        if update in (2, 5):
            assert [entry["update"] for entry in tail.read()] == ([1, 2] if update == 2 else [3, 4, 5])
    with (tmp_path / PROGRESS).open("a") as file:
        file.write('{"update": 6, ')  # a line that is being written
        file.flush()
        assert tail.read() == []
        file.write('"loss": 1.0}\n')
    assert [entry["update"] for entry in tail.read()] == [6]
    log.append({"update": 1, "loss": 1.0})
    log.forget_after(3)  # as a resumed training does
    assert [entry["update"] for entry in tail.read()] == [1, 2, 3]
    assert tail.read() == []
    (tmp_path / PROGRESS).write_text("[]\n")
    with pytest.raises(InputError, match=r"is not a training log"):
        tail.read()
