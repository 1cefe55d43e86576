"""Several processes that train together, on one machine or on several: JAX's runtime and collectives."""

import contextlib
import itertools
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from heedful.backend.devices import NAME
from heedful.core.errors import LOST_PROCESS, InputError
from heedful.core.progress import note
from heedful.core.stop_signals import ending_signals

CONNECT_SECONDS = 120  # to wait for the other processes at the start
MAX_WAIT_SECONDS = 7 * 24 * 3600  # for what another process does alone
_joined: list[Any] = []  # this process's (index, count, option of the command line), once it has joined others
_exchanges = itertools.count()  # numbers them, the same in each process


def join(
    address: str | None,
    count: int | None,
    index: int | None,
    devices: Sequence[int] | None = None,
    option: str = "--join",
    heartbeat: int = 600,
) -> None:
    """Join the processes that train together, before any device is used; wait for all of them.

    Args:
        address: HOST:PORT where process 0 listens. None: JAX finds address, count and index in the variables of SLURM,
            Open MPI or Kubernetes.
        count: how many processes there are.
        index: which of them this one is, from 0.
        devices: numbers of the accelerators of its machine that this process uses; None: all, or the one that JAX
            derives from the launcher's variables.
        option: of the command line, with which the training is continued in as many processes.
        heartbeat: seconds after which JAX ends the others if a process is not running at all. During updates,
            `Watchdog` notices earlier, and also one that runs and makes no progress.

    Raises:
        InputError: the backend is not JAX, or the others cannot be reached.
    """
    if NAME != "jax":
        raise InputError(f"{NAME} trains in one process here: several need the backend jax.")
    if address and index == 0:
        _require_free_port(address)
    elif address:
        _wait_for_port(address)
    import jax
    from jax.experimental import multihost_utils

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM away from `Signals`
    try:
        with _silent_output():
            jax.distributed.initialize(
                address, count, index, local_device_ids=devices,
                cluster_detection_method="deactivate" if address else None,
                initialization_timeout=CONNECT_SECONDS, heartbeat_timeout_seconds=heartbeat,
            )  # fmt: skip
            # Gloo connects at the first collective, and waits 30 s for it: no process is late here.
            multihost_utils.sync_global_devices("start")
    except (RuntimeError, ValueError) as error:
        where = f" at {address}" if address else ""
        raise InputError(f"The other processes cannot be joined{where}: {_first_line(error)}") from error
    _joined[:] = [jax.process_index(), jax.process_count(), option]


def leave() -> None:
    """Leave the joined processes, once all of them have ended their work."""
    import jax

    _joined.clear()
    jax.distributed.shutdown()


def abandon(code: int) -> NoReturn:
    """End this process at once: others may be gone, so that leaving in order would wait for them."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


@contextlib.contextmanager
def abandoned_on_error(resume: str) -> Iterator[None]:
    """End this process if an error ends work that all processes do together: they cannot go on to the next work.

    Args:
        resume: the command that continues the training.
    """
    try:
        yield
    except BaseException as error:
        if process_count() == 1:
            raise
        if _shows_a_loss(error):
            note(f"heedful: another of {process_count()} processes is gone. Continue with: {resume}")
            abandon(LOST_PROCESS)
        if isinstance(error, (InputError, OSError)):
            message = f"{error.strerror}: {error.filename or ''}" if isinstance(error, OSError) else str(error)
            note(f"heedful: {message}")
            abandon(2)
        if isinstance(error, KeyboardInterrupt):
            abandon(130)
        traceback.print_exc()
        abandon(1)


def _shows_a_loss(error):
    """Return whether an error says that another process cannot be reached: JAX raises it under several types."""
    lost = ("Gloo", "UNAVAILABLE", "DEADLINE_EXCEEDED", "Connection reset", "Connection closed", "heartbeat")
    return isinstance(error, (RuntimeError, ValueError)) and any(sign in str(error) for sign in lost)


def process_index() -> int:
    """Return which of the joined processes this one is; 0 writes the run folder, and the only process is 0."""
    return _joined[0] if _joined else 0


def process_count() -> int:
    """Return how many processes train together."""
    return _joined[1] if _joined else 1


def resume_command(path: Path) -> str:
    """Return the command that continues the training of a run in as many processes."""
    return f"heedful train --resume {path}{f' {_joined[2]}' if _joined else ''}"


def exchange(value: Any) -> list[Any]:
    """Wait for all processes, and return what each of them passes, by index: anything that JSON can hold.

    Signals are delayed until it is over. An exchange that only some processes finish would be mixed up with the next.
    """
    if process_count() == 1:
        return [value]
    with _signals_held():
        _wait_for_all()
        return _gathered(value)


def _wait_for_all():
    """Wait until all processes have come here: collectives give up after half an hour."""
    from jax._src.distributed import global_state  # the coordination service has no public interface

    client: Any = global_state.client
    barrier = f"heedful/{next(_exchanges)}"
    client.key_value_set(f"{barrier}/{process_index()}", "here")
    for index in range(process_count()):
        client.blocking_key_value_get(f"{barrier}/{index}", 1000 * MAX_WAIT_SECONDS)


@contextlib.contextmanager
def _signals_held():
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, *ending_signals()})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _gathered(value):
    from jax.experimental import multihost_utils

    content = np.frombuffer(json.dumps(value).encode(), np.uint8)
    lengths = np.ravel(multihost_utils.process_allgather(np.array([len(content)], np.int32)))
    width = 1 << int(lengths.max()).bit_length()  # few lengths, since each is a program of its own
    padded = np.pad(content, (0, width - len(content)))
    gathered = np.reshape(multihost_utils.process_allgather(padded), (process_count(), width))
    return [json.loads(row[:length].tobytes()) for row, length in zip(gathered, lengths, strict=True)]


def from_first(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the arrays of process 0 in all processes, bit for bit; every process passes some of the same shapes."""
    if process_count() == 1:
        return list(arrays)
    from jax.experimental import multihost_utils

    received = []
    for array in arrays:
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        copied = np.asarray(multihost_utils.broadcast_one_to_all(content))
        received.append(copied.view(array.dtype).reshape(array.shape))
    return received


def _require_free_port(address):
    _, port = _split(address)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise InputError(f"Process 0 cannot listen at {address}: {error.strerror}. Choose another port.") from error


def _wait_for_port(address):
    """Wait until something listens at an address: JAX would end the process with a C++ message if nothing does."""
    host, port = _split(address)
    deadline = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            with socket.create_connection((host, port), timeout=10):
                return
        except OSError as error:
            if time.monotonic() > deadline:
                raise InputError(
                    f"Process 0 cannot be reached at {address}: {error.strerror or error}. It has to listen there; see "
                    "MASTER_ADDR and MASTER_PORT."
                ) from error
            time.sleep(0.2)


def _split(address):
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 2**16:
        raise InputError(f"{address!r} is not HOST:PORT.")
    return host.strip("[]"), int(port)


def _first_line(error):
    return (str(error).splitlines() or [type(error).__name__])[0]


@contextlib.contextmanager
def _silent_output() -> Iterator[None]:
    """Send what libraries write to standard output, such as Gloo's greeting, to the null device."""
    sys.stdout.flush()
    kept, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(null)
