"""Start several processes of this machine that train together, and end them together."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

from heedful.core.distributed.parent import PARENT
from heedful.core.errors import LOST_PROCESS
from heedful.core.progress import note
from heedful.core.stop_signals import ending_signals

GRACE = 10.0  # seconds that the other processes get to end, once one has failed
POLL = 0.1  # seconds between looks at the processes


def launch(
    commands: Sequence[Sequence[str]],
    resume: str,
    environments: Sequence[Mapping[str, str]] | None = None,
    together: bool = True,
) -> int:
    """Run commands together, each in a process with its share of the cores; return the exit code.

    Each process finds its place in RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. The output of process 0 is shown.
    Signals are passed on to all.

    Args:
        commands: programs and their arguments. They call `end_with_parent`, as every command of heedful does.
        resume: the command that continues the work.
        environments: more environment variables of each.
        together: whether they need each other. Then the others are ended if one fails. Otherwise they go on; the
            messages of all are shown, but no standard output.
    """
    reading, writing = os.pipe()  # each process ends when `writing` closes: when this one ends, however that happens
    group = _Group(len(commands), together)
    before = {number: signal.signal(number, group.pass_on) for number in (signal.SIGINT, *ending_signals())}
    try:
        group.start(commands, environments or [{}] * len(commands), reading)
        return group.wait(resume)
    finally:
        group.kill()
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reading)
        os.close(writing)


class _Group:
    """The started processes."""

    def __init__(self, count, together):
        self.together = together
        self.count, self.processes, self.messages, self.pending = count, [], [], None
        self.killed: set[int] = set()  # those that had to be killed because others had failed

    def start(self, commands, environments, parent):
        port, cores = _free_port(), _shares(sorted(_cores()), self.count)
        for index in range(self.count):
            place = {"RANK": index, "WORLD_SIZE": self.count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            environment = os.environ | {name: str(value) for name, value in place.items()} | {PARENT: str(parent)}
            environment |= {"LOCAL_RANK": str(index), "LOCAL_WORLD_SIZE": str(self.count)}
            environment.pop("TORCHELASTIC_RUN_ID", None)
            environment |= environments[index]
            message = None if index == 0 else tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process runs
            self.messages.append(message)
            started = subprocess.Popen(
                commands[index], env=environment, pass_fds=[parent], start_new_session=True,
                stdin=None if index == 0 else subprocess.DEVNULL, stderr=message,
                stdout=None if index == 0 and self.together else subprocess.DEVNULL,
            )  # fmt: skip
            if cores:
                os.sched_setaffinity(started.pid, cores[index])
            self.processes.append(started)
        if self.pending is not None:
            self.pass_on(self.pending, None)

    def pass_on(self, number, frame):
        """Send a signal to all processes."""
        self.pending = number
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(number)

    def wait(self, resume):
        """Wait until all have ended; return the exit code of the first one that failed, or of process 0."""
        while any(process.poll() is None for process in self.processes):
            if self.together and any(process.poll() for process in self.processes):
                self._end()
                break
            time.sleep(POLL)
        codes = [process.returncode for process in self.processes]
        if not self.together:
            sys.stderr.write("".join(map(self._said, range(1, self.count))))
        if self.pending is not None and (codes[0] >= 128 or codes[0] == -self.pending):
            return 128 + self.pending  # stopped by a signal; what was done is saved
        if not any(codes):
            return 0
        # The cause: what a signal ended from outside, rather than what ended because of it.
        index = min(range(self.count), key=lambda index: (index in self.killed, _blame(codes[index]), index))
        if index and self.together:
            sys.stderr.write(self._said(index))
        if codes[index] < 0:
            advice = "" if codes[0] > 0 else f" Continue with: {resume}"  # process 0 has given it
            note(f"heedful: process {index} of {self.count} was ended by {signal.Signals(-codes[index]).name}.{advice}")
        return codes[index] if codes[index] > 0 and codes[index] != LOST_PROCESS else 1

    def _said(self, index):
        """Return the messages of a process other than the first."""
        self.messages[index].seek(0)
        return self.messages[index].read().decode(errors="replace")

    def _end(self):
        """Give the processes some time to end by themselves; then end them."""
        deadline = time.monotonic() + GRACE
        while time.monotonic() < deadline and any(process.poll() is None for process in self.processes):
            time.sleep(POLL)
        self.killed = {index for index, process in enumerate(self.processes) if process.poll() is None}
        self.kill()

    def kill(self):
        """End those that still run, at once."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
        for process in self.processes:
            process.wait()


def _blame(code):
    """Return a rank of an exit code: the process with the lowest one is reported as the cause."""
    if code < 0 and code != -signal.SIGABRT:  # a signal from outside; XLA aborts when it loses another process
        return 0
    if code > 0 and code != LOST_PROCESS:
        return 1
    return 2 if code < 0 else 3 if code else 4


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _cores():
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()


def _shares(cores, count):
    """Return a share of the cores for each process; all share them if there are fewer."""
    if len(cores) < count:
        return [cores] * count if cores else []
    return [cores[index * len(cores) // count : (index + 1) * len(cores) // count] for index in range(count)]
