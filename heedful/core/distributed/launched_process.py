"""The rank of this process and the number of processes, as the environment variables of a launcher give them."""

import glob
from collections.abc import Mapping
from dataclasses import dataclass

from heedful.core.errors import InputError

TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# Launchers whose variables JAX reads by itself, in its order, and the variables that tell them apart.
JAX_LAUNCHERS = {
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_MCA_orte_hnp_uri"),
    "SLURM": ("SLURM_JOB_ID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NODELIST"),
    "Kubernetes": ("KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX"),
}


@dataclass(frozen=True)
class LaunchedProcess:
    """A process among those that train together.

    Args:
        launcher: the launcher and its variables, for messages.
        address: HOST:PORT where process 0 listens; None, as for the next ones: JAX reads the variables.
        process_count: the number of processes.
        process_index: the rank of this one.
        local_device_ids: the accelerators of its machine that it uses; None: all, or the one that JAX derives.
    """

    launcher: str
    address: str | None = None
    process_count: int | None = None
    process_index: int | None = None
    local_device_ids: tuple[int, ...] | None = None


def launched_process(environment: Mapping[str, str]) -> LaunchedProcess:
    """Return what environment variables say: those of torchrun, of Open MPI, of SLURM or of Kubernetes.

    Raises:
        InputError: no launcher has set its variables, or they are wrong.
    """
    if all(environment.get(name) for name in TORCHRUN):
        return _of_torchrun(environment)
    for launcher, names in JAX_LAUNCHERS.items():
        if all(environment.get(name) for name in names):
            devices = _all_devices(environment) if _is_alone(launcher, environment) else None
            return LaunchedProcess(f"{launcher}: {', '.join(names)}", local_device_ids=devices)
    known = "; ".join(
        f"{launcher}: {', '.join(names)}" for launcher, names in (("torchrun", TORCHRUN), *JAX_LAUNCHERS.items())
    )
    raise InputError(f"--join finds no launcher's variables. Those that it reads: {known}.")


def _is_alone(launcher, environment):
    """Return whether a process is the only one on its machine; JAX would use only one of its GPUs."""
    if launcher == "Open MPI":
        return environment.get("OMPI_COMM_WORLD_LOCAL_SIZE") == "1"
    if launcher != "SLURM":
        return False
    tasks, nodes = (environment.get(f"SLURM_STEP_NUM_{name}") for name in ("TASKS", "NODES"))
    return environment.get("SLURM_NTASKS_PER_NODE") == "1" or (tasks is not None and tasks == nodes)


def _of_torchrun(environment):
    rank, count, port = (_number(environment, name) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    if rank >= count:
        raise InputError(f"RANK is {rank} and WORLD_SIZE {count}: ranks count from 0.")
    if environment.get("TORCHELASTIC_RUN_ID"):
        port += 1  # torchrun itself listens at MASTER_PORT
    alone = environment.get("LOCAL_WORLD_SIZE") == "1"
    devices = (_number(environment, "LOCAL_RANK"),) if environment.get("LOCAL_RANK") and not alone else None
    return LaunchedProcess(
        "RANK, WORLD_SIZE, MASTER_ADDR", f"{environment['MASTER_ADDR']}:{port}", count, rank, devices
    )


def _all_devices(environment):
    """Return the numbers of all NVIDIA GPUs that a process may use, which JAX would take one of; None without any."""
    visible = [name for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    count = len(visible) or len(glob.glob("/dev/nvidia[0-9]*"))
    return tuple(range(count)) or None


def _number(environment, name):
    text = environment[name]
    if not text.isdecimal():
        raise InputError(f"{name} is {text!r}, not a number.")
    return int(text)
