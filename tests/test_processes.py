"""Several processes train together: the result equals that of one within rounding, and all of them end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from heedful import backend
from heedful.core.distributed import launch as launching
from heedful.runs.run import Run
from tests.conftest import write_recipe
from tests.test_devices import difference

pytestmark = pytest.mark.skipif(backend.NAME != "jax", reason="other backends train in one process")
KILLS = int(os.environ.get("HEEDFUL_KILLS", "4"))  # of a training that is killed again and again


def start(folder, *arguments, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "heedful", *map(str, arguments)], cwd=folder, env=os.environ | environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def heedful(folder, *arguments, **environment):
    """Run a command; return its exit code, standard output and standard error."""
    process = start(folder, *arguments, **environment)
    output, errors = process.communicate(timeout=300)
    return process.returncode, output, errors


def children(process):
    """Return the process ids of the children of a process, in the order in which they began."""
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(number) for number in path.read_text().split()] if path.exists() else []


def gone(numbers, seconds=20.0):
    """Return whether processes with these ids end within some seconds; zombies have ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(_runs(number) for number in numbers):
            return True
        time.sleep(0.1)
    return False


def _runs(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for_update(run, update, process):
    """Wait until a run has saved the state of some update, or a later one."""
    deadline = time.monotonic() + 200
    while process.poll() is None and time.monotonic() < deadline:
        if any(int(path.stem) >= update for path in (run / "state").glob("*.safetensors")):
            return
        time.sleep(0.02)
    raise AssertionError(f"{run} did not reach update {update}: {process.communicate(timeout=60)}")


def assert_same_bits(one, other):
    first, second = (Run.open(folder).checkpoints.read_last()[0] for folder in (one, other))
    assert first.keys() == second.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name], err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("translate", ["--data.batch_sentences", "7", "--train.accumulate_batches", "2", "--train.clip_norm", "1"]),
        ("classify", []),
        ("fill", ["--model.attention_dropout", "0.1"]),
        ("generate", ["--data.packing", "documents"]),
        ("classify", ["--train.precision", "bfloat16"]),
    ],
)
def test_two_processes_train_as_one_does(tmp_path, task, settings):
    """Rows that the processes cannot divide, accumulated gradients, dropout."""
    recipe = write_recipe(tmp_path, task)
    common = ["train", recipe, "--train.updates", "1", "--train.check", "true", *settings]
    assert heedful(tmp_path, *common, "--run", "one")[0] == 0
    code, output, errors = heedful(tmp_path, *common, "--run", "two", "--processes", "2")
    assert code == 0, errors
    assert "devices: 2 of 2 used, in 2 processes" in output
    rounded = "bfloat16" in settings
    assert difference(tmp_path / "one", tmp_path / "two", "_momentum") < (5e-2 if rounded else 1e-5)
    losses = [Run.open(tmp_path / folder).log.read()[0]["loss"] for folder in ("one", "two")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-2 if rounded else 1e-5)


@pytest.mark.slow
def test_two_processes_repeat_and_resume_exactly(tmp_path):
    recipe = write_recipe(tmp_path)
    for folder, updates in (("whole", 6), ("parts", 3)):
        code, _, errors = heedful(
            tmp_path, "train", recipe, "--run", folder, "--train.updates", updates, "--processes", "2"
        )
        assert code == 0, errors
    code, _, errors = heedful(
        tmp_path, "train", "--resume", "parts", "--train.updates", "6", "--processes", "2", "--verify"
    )
    assert code == 2
    assert "change none" in errors
    assert heedful(tmp_path, "train", "--resume", "parts", "--train.updates", "6", "--processes", "2")[0] == 0
    assert_same_bits(tmp_path / "whole", tmp_path / "parts")
    code, output, errors = heedful(tmp_path, "train", "--resume", "parts", "--processes", "2", "--verify")
    assert code == 0, errors
    assert "identical to the last bit" in output
    code, _, errors = heedful(tmp_path, "train", "--resume", "parts", "--verify")
    assert code == 2
    assert "computed on 2 devices of 2 processes" in errors
    code, output, _ = heedful(tmp_path, "train", "--resume", "parts", "--train.updates", "7")
    assert "was trained on 2 devices of 2 processes, and is continued on one device" in output


@pytest.mark.slow
def test_any_process_may_be_killed_and_the_training_resumed(tmp_path):
    """SIGTERM and SIGKILL of either process; the end is that of a training that was never killed."""
    recipe, updates = write_recipe(tmp_path), 8 * KILLS
    settings = ["--train.updates", updates, "--train.validate_every", "1", "--train.validate_sentences", "0"]
    assert heedful(tmp_path, "train", recipe, "--run", "whole", *settings, "--processes", "2")[0] == 0
    arguments = ["train", recipe, "--run", "killed", *settings]
    for kill in range(KILLS):
        process = start(tmp_path, *arguments, "--processes", "2")
        wait_for_update(tmp_path / "killed", 1 + kill * 8 + kill % 5, process)
        processes = children(process)
        assert len(processes) == 2
        number = (signal.SIGTERM, signal.SIGKILL)[kill // 2 % 2]
        os.kill(processes[kill % 2], number)
        output, errors = process.communicate(timeout=150)
        assert process.returncode == (128 + signal.SIGTERM if number == signal.SIGTERM else 1), errors
        assert gone(processes)
        advice = errors if number == signal.SIGKILL else output + errors
        assert "heedful train --resume killed" in advice, (kill, errors)
        assert "Traceback" not in errors, (kill, errors)
        arguments = ["train", "--resume", "killed"]
    code, _, errors = heedful(tmp_path, *arguments, "--processes", "2")
    assert code == 0, errors
    assert_same_bits(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [0, 1])
def test_a_stuck_process_is_noticed(tmp_path, stopped):
    recipe = write_recipe(tmp_path)
    settings = ["--train.updates", "100000", "--train.validate_every", "100000", "--train.save_minutes", "0.001"]
    settings += ["--train.stall_minutes", "0.5"]
    process = start(tmp_path, "train", recipe, "--run", "run", *settings, "--processes", "2")
    wait_for_update(tmp_path / "run", 1, process)
    processes = children(process)
    os.kill(processes[stopped], signal.SIGSTOP)
    began = time.monotonic()
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert 25 < time.monotonic() - began < 60
    assert "one is stuck or gone" in errors
    assert gone(processes)


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [0, 1])
def test_a_process_that_stops_between_updates_is_noticed(tmp_path, stopped):
    """The first one alone works there, and the watchdog of updates sleeps."""
    recipe = write_recipe(tmp_path)
    settings = ["--train.updates", "4", "--train.stall_minutes", "0.05", "--tokenizer.kind", "bpe"]
    process = start(tmp_path, "train", recipe, "--run", "run", *settings, "--processes", "2")
    joined = process.stderr.readline()
    assert "joined 2 processes" in joined
    processes = children(process)
    os.kill(processes[stopped], signal.SIGSTOP)
    began = time.monotonic()
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 1
    assert time.monotonic() - began < 150
    assert "Continue with" in errors
    assert "Traceback" not in errors
    assert gone(processes)


@pytest.mark.slow
def test_what_the_processes_disagree_about_is_named(tmp_path):
    recipe, port = write_recipe(tmp_path), launching._free_port()

    def joining(index, *arguments):
        place = {"RANK": str(index), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        return start(tmp_path, "train", recipe, "--run", "run", "--join", *arguments, **place)

    pair = [joining(0), joining(1, "--train.seed", "7")]
    for process in pair:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 2
        assert "train.seed is 7 in process 1, and 1 in process 0." in errors
    other = tmp_path / "elsewhere"
    other.mkdir()
    text = Path(tmp_path / "text.en").read_text(encoding="utf-8")
    (other / "text.en").write_text(text.replace("cat", "car"), encoding="utf-8")
    (other / "text.pt").write_bytes((tmp_path / "text.pt").read_bytes())
    short = write_recipe(tmp_path).read_text(encoding="utf-8").replace(f"{tmp_path}/", "")
    recipe.write_text(short, encoding="utf-8")
    work = tmp_path / "work"  # where no text lies beside
    work.mkdir()
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(launching._free_port())}
    pair = [
        start(work, "train", recipe, "--run", "run", "--join", HEEDFUL_DATA=str(data), RANK=str(index), **place)
        for index, data in enumerate((tmp_path, other))
    ]
    codes = []
    for process in pair:
        _, errors = process.communicate(timeout=120)
        codes.append((process.returncode, errors))
    assert [code for code, _ in codes] == [2, 2]
    assert "Process 1: its training text differs from that of process 0" in codes[0][1]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["slurm", "mpi"])
def test_the_variables_of_a_launcher_are_found(tmp_path, launcher):
    recipe, port = write_recipe(tmp_path), launching._free_port()
    pair = []
    for index in range(2):
        environment = {
            "slurm": {
                "SLURM_JOB_ID": str(port), "SLURM_NTASKS": "2", "SLURM_PROCID": str(index), "SLURM_LOCALID": str(index),
                "SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_NUM_TASKS": "2",
            },
            "mpi": {
                "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": str(index),
                "OMPI_COMM_WORLD_LOCAL_RANK": str(index),
                "OMPI_MCA_orte_hnp_uri": f"{port}.0;tcp://127.0.0.1:{port}",
            },
        }[launcher]  # fmt: skip
        pair.append(start(tmp_path, "train", recipe, "--run", "run", "--join", **environment))
    outputs = [process.communicate(timeout=200) for process in pair]
    assert [process.returncode for process in pair] == [0, 0], outputs
    assert "joined 2 processes" in outputs[0][1]
    assert "in 2 processes" in outputs[0][0]
    assert outputs[1][0] == ""


@pytest.mark.slow
def test_more_devices_than_rows_are_refused(tmp_path):
    recipe = write_recipe(tmp_path)
    code, _, errors = heedful(
        tmp_path, "train", recipe, "--run", "run", "--data.batch_sentences", "1", "--processes", "2"
    )
    assert code == 2
    assert "The largest batch has 1 row, too few for 2 devices" in errors


@pytest.mark.slow
def test_processes_that_share_the_weights_compute_what_copies_do(tmp_path):
    """Gradients are equal within rounding; resumed with parts again, a training gives the same bits."""
    recipe, command = write_recipe(tmp_path), ["train", "--processes", "2", "--train.save_minutes", "0.001"]

    def train(*arguments):
        code, _, errors = heedful(tmp_path, *command, *arguments)
        assert code == 0, errors

    trainings = ("copies", 1, "false"), ("once", 1, "true"), ("parts", 6, "true"), ("resumed", 3, "true")
    for folder, updates, shard in trainings:
        train(recipe, "--run", folder, "--train.updates", updates, "--train.shard", shard)
    assert difference(tmp_path / "copies", tmp_path / "once", "_momentum") < 1e-5
    train("--resume", "resumed", "--train.updates", "6")
    assert_same_bits(tmp_path / "parts", tmp_path / "resumed")
    train("--resume", "parts", "--train.updates", "8", "--train.shard", "false")


@pytest.mark.slow
@pytest.mark.parametrize("shard", ["false", "true"])
def test_processes_log_the_rates_of_a_planned_schedule(tmp_path, shard):
    """Guards against learning rates that were read from variables which `fit` holds, or other processes share."""
    recipe = write_recipe(tmp_path)
    code, _, errors = heedful(
        tmp_path, "train", recipe, "--run", "run", "--processes", "2", "--train.shard", shard, "--train.minutes", "5",
        "--train.schedule", "cosine", "--train.updates", "3000", "--train.validate_every", "3000",
    )  # fmt: skip
    assert code == 0, errors
    run = Run.open(tmp_path / "run")
    rates = [entry["learning_rate"] for entry in run.log.read("progress.jsonl") if "learning_rate" in entry]
    assert len(rates) > 1
    assert run.log.read()[-1]["learning_rate"] < 1e-3 * max(rates)
