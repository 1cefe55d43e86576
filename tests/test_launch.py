"""Starting processes together and finding a place among them: exit codes, signals, launchers, what cannot be joined."""

import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from heedful import backend
from heedful.backend import processes
from heedful.core.distributed import launch as launching
from heedful.core.distributed.launched_process import LaunchedProcess, launched_process
from heedful.core.errors import InputError
from tests.test_processes import children, gone

pytestmark = [
    pytest.mark.any_backend, pytest.mark.skipif(backend.NAME != "jax", reason="other backends train in one process"),
]  # fmt: skip


def test_a_launcher_is_found_by_its_variables():
    torchrun = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "host", "MASTER_PORT": "2000"}
    assert launched_process(torchrun) == LaunchedProcess("RANK, WORLD_SIZE, MASTER_ADDR", "host:2000", 4, 1, None)
    elastic = torchrun | {"TORCHELASTIC_RUN_ID": "x", "LOCAL_RANK": "0"}
    assert launched_process(elastic) == LaunchedProcess("RANK, WORLD_SIZE, MASTER_ADDR", "host:2001", 4, 1, (0,))
    assert launched_process(elastic | {"LOCAL_WORLD_SIZE": "1"}).local_device_ids is None
    kubernetes = launched_process({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "0"})
    assert kubernetes.address is None
    assert kubernetes.launcher.startswith("Kubernetes")
    slurm = {"SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_STEP_NODELIST": "n[1-4]"}
    gpus = {"CUDA_VISIBLE_DEVICES": "0,1,2"}
    one_on_each_node = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NUM_NODES": "4"}
    assert launched_process(slurm | gpus).local_device_ids is None
    assert launched_process(slurm | gpus | one_on_each_node).local_device_ids == (0, 1, 2)
    assert launched_process(slurm | gpus | {"SLURM_NTASKS_PER_NODE": "1"}).local_device_ids == (0, 1, 2)
    mpi = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_MCA_orte_hnp_uri": "x"}
    assert launched_process(slurm | mpi).launcher.startswith("Open MPI")  # as JAX reads them
    with pytest.raises(InputError, match=r"no launcher's variables.*RANK.*SLURM_JOB_ID"):
        launched_process({"RANK": "1"})
    with pytest.raises(InputError, match="RANK is 4 and WORLD_SIZE 4"):
        launched_process(torchrun | {"RANK": "4"})
    with pytest.raises(InputError, match="MASTER_PORT is 'x'"):
        launched_process(torchrun | {"MASTER_PORT": "x"})


SCRIPT = """
import os, signal, sys, time
from heedful.core.distributed.parent import end_with_parent
end_with_parent()
rank = os.environ["RANK"]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + 15))
print(rank, os.environ["WORLD_SIZE"], os.environ["MASTER_ADDR"], sorted(os.sched_getaffinity(0)), flush=True)
{body}
"""


def launched(body, count=2, together=True):
    """Return a process that launches a script in some processes."""
    script = SCRIPT.format(body=body)
    code = (
        "import sys; from heedful.core.distributed import launch\n"
        "launch.GRACE = 2\n"
        f"sys.exit(launch.launch([[sys.executable, '-c', {script!r}]] * {count}, 'RESUME', together={together}))"
    )
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_process_0_is_shown_and_each_has_its_cores():
    output, errors = launched("").communicate(timeout=60)
    assert errors == ""
    rank, count, address, cores = output.split(maxsplit=3)
    assert (rank, count, address) == ("0", "2", "127.0.0.1")
    if len(os.sched_getaffinity(0)) > 1:
        assert len(cores.split(",")) == len(os.sched_getaffinity(0)) // 2


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("sys.exit(0)", 0, ""),
        pytest.param(
            "time.sleep(60) if rank == '0' else sys.exit(print('so it is', file=sys.stderr) or 2)", 2, "so it is\n",
            marks=pytest.mark.slow,
        ),
        (
            "time.sleep(60) if rank == '0' else os.kill(os.getpid(), signal.SIGKILL)", 1,
            "heedful: process 1 of 2 was ended by SIGKILL. Continue with: RESUME\n",
        ),
        pytest.param("sys.exit(3) if rank == '0' else time.sleep(60)", 3, "", marks=pytest.mark.slow),
        # Process 0 ends because of the other one, whose message is shown.
        ("sys.exit(75) if rank == '0' else sys.exit(print('disk full', file=sys.stderr) or 2)", 2, "disk full\n"),
        ("time.sleep(1); sys.exit(75)", 1, ""),
    ],
)  # fmt: skip
def test_one_that_fails_ends_all(body, code, message):
    process = launched(body)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert errors == message


def test_processes_with_work_of_their_own_go_on_when_one_fails():
    body = "sys.exit(2) if rank == '0' else (time.sleep(1), print('warning: x', file=sys.stderr))"
    code = launched(body, together=False)
    output, errors = code.communicate(timeout=60)
    assert (code.returncode, output, errors) == (2, "", "warning: x\n")


def test_signals_reach_all_processes():
    process = launched("time.sleep(60)")
    assert process.stdout.readline()
    processes = children(process)
    time.sleep(0.5)  # until the other one has set its handler too
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert gone(processes)


def test_no_process_outlives_the_one_that_started_it():
    process = launched("time.sleep(60)")
    assert process.stdout.readline()
    processes = children(process)
    assert len(processes) == 2
    time.sleep(0.5)
    process.kill()
    process.communicate(timeout=30)
    assert gone(processes)


def test_a_place_that_cannot_be_joined_is_refused(monkeypatch):
    monkeypatch.setattr(processes, "CONNECT_SECONDS", 0.3)
    free = launching._free_port()
    with pytest.raises(InputError, match=f"Process 0 cannot be reached at 127.0.0.1:{free}"):
        backend.join(f"127.0.0.1:{free}", 2, 1)
    with pytest.raises(InputError, match=r"cannot be reached at no\.such\.host\.invalid"):
        backend.join("no.such.host.invalid:2000", 2, 1)
    with pytest.raises(InputError, match="is not HOST:PORT"):
        backend.join("nowhere", 2, 1)
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"cannot listen at 127.0.0.1:{port}"):
            backend.join(f"127.0.0.1:{port}", 2, 0)


def test_one_process_exchanges_with_itself():
    assert backend.exchange({"a": 1}) == [{"a": 1}]
    [array] = backend.from_first([np.arange(3)])
    np.testing.assert_array_equal(array, np.arange(3))
    assert (backend.process_index(), backend.process_count()) == (0, 1)
