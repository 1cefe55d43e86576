"""End with the process that started this one."""

import os
import threading

PARENT = "HEEDFUL_PARENT"  # environment variable: a file descriptor that closes when the parent process ends
STANDARD_INPUT = "0"  # a value of it
_started: list[bool] = []


def has_parent() -> bool:
    """Return whether heedful started this process, among others."""
    return bool(_started)


def end_with_parent() -> None:
    """End this process when the one that started it ends, however that happens; no effect without such a process."""
    descriptor = os.environ.pop(PARENT, "")
    if descriptor:
        _started.append(True)
        threading.Thread(target=_wait, args=(int(descriptor),), daemon=True).start()


def _wait(descriptor):
    os.read(descriptor, 1)  # returns when the other end is closed
    os._exit(1)
