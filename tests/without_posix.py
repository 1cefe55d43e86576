"""Run the command line without what Windows lacks: python tests/without_posix.py COMMAND ARGUMENTS ...

It lacks some modules, functions and signals, and the files of Linux about processes. Locks go through `msvcrt`, which
locks a byte of a file.
"""

import asyncio  # noqa: F401 - like the others, an own form of it for Linux is loaded before its parts are taken away
import fcntl
import io
import os
import signal
import sys
import types

import psutil  # noqa: F401
import sacrebleu  # noqa: F401

MODULES = "fcntl grp pty pwd resource termios tty".split()
FUNCTIONS = (
    "O_NOFOLLOW confstr fork forkpty getloadavg getpgid geteuid getuid killpg posix_spawn sched_getaffinity "
    "sched_setaffinity setsid sysconf"
).split()
SIGNALS = "SIGALRM SIGHUP SIGKILL SIGQUIT SIGUSR1 SIGUSR2 alarm pthread_kill pthread_sigmask setitimer sigwait".split()


def locking(descriptor, mode, count):
    """Lock `count` bytes at the position of a file, as `msvcrt.locking` does."""
    assert mode == 2
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, count, os.lseek(descriptor, 0, os.SEEK_CUR))


def hide():
    """Take away what Windows lacks."""
    opened = io.open

    def open_file(file, *arguments, **options):
        if str(file).startswith(("/proc", "/sys/fs")):
            raise FileNotFoundError(file)
        return opened(file, *arguments, **options)

    io.open = open_file  # that of pathlib; libraries use the built-in one
    sys.modules |= dict.fromkeys(MODULES)
    sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2)
    for name in FUNCTIONS:
        delattr(os, name)
    for name in SIGNALS:
        delattr(signal, name)


if __name__ == "__main__":
    hide()
    from heedful.cli import main

    sys.exit(main(sys.argv[1:]))
