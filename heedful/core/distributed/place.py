"""This process's place among those that a launcher started together, from environment variables."""

import glob
from collections.abc import Mapping
from dataclasses import dataclass

from heedful.core.errors import InputError

TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
OTHERS = {  # launchers whose variables JAX reads by itself, and the variables that tell them apart
    "SLURM": ("SLURM_JOB_ID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NODELIST"),
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_MCA_orte_hnp_uri"),
    "Kubernetes": ("KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX"),
}

# Variables with the number of processes on this machine. Where it is 1, JAX would use one GPU only.
ALONE = {"SLURM": "SLURM_NTASKS_PER_NODE", "Open MPI": "OMPI_COMM_WORLD_LOCAL_SIZE"}


@dataclass(frozen=True)
class Place:
    """A process among those that train together.

    Args:
        source: the variables that say so, in words.
        address: HOST:PORT where process 0 listens; None, as for the next ones: JAX reads the variables.
        count: how many processes there are.
        index: which of them this one is.
        devices: numbers of the accelerators of its machine that it uses; None: all, or the one that JAX derives.
    """

    source: str
    address: str | None = None
    count: int | None = None
    index: int | None = None
    devices: tuple[int, ...] | None = None


def find_place(environment: Mapping[str, str]) -> Place:
    """Return the place that environment variables name: those of torchrun, of SLURM, of Open MPI or of Kubernetes.

    Raises:
        InputError: no launcher has set its variables, or they are wrong.
    """
    if all(environment.get(name) for name in TORCHRUN):
        return _of_torchrun(environment)
    for launcher, names in OTHERS.items():
        if all(environment.get(name) for name in names):
            alone = environment.get(ALONE.get(launcher, "")) == "1"  # the only process on its machine
            return Place(f"{launcher}: {', '.join(names)}", devices=_all_devices(environment) if alone else None)
    known = "; ".join(
        f"{launcher}: {', '.join(names)}" for launcher, names in (("torchrun", TORCHRUN), *OTHERS.items())
    )
    raise InputError(f"--join finds no launcher's variables. Those that it reads: {known}.")


def _of_torchrun(environment):
    rank, count, port = (_number(environment, name) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    if rank >= count:
        raise InputError(f"RANK is {rank} and WORLD_SIZE {count}: ranks count from 0.")
    if environment.get("TORCHELASTIC_RUN_ID"):
        port += 1  # torchrun itself listens at MASTER_PORT
    alone = environment.get("LOCAL_WORLD_SIZE") == "1"
    devices = (_number(environment, "LOCAL_RANK"),) if environment.get("LOCAL_RANK") and not alone else None
    return Place("RANK, WORLD_SIZE, MASTER_ADDR", f"{environment['MASTER_ADDR']}:{port}", count, rank, devices)


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
