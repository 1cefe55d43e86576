"""Memory of this process: how the C library manages it, and its peak."""

import ctypes
import os
import re
import sys
from pathlib import Path

import psutil

# The names M_... of <malloc.h>
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_held: list[ctypes.CDLL] = []  # glibc, once `keep_freed_memory` has configured it


def keep_freed_memory() -> None:
    """Keep freed memory in the process instead of returning it to Linux after every update.

    Each compiled update allocates its activations again. By default glibc maps fresh pages for them, and the kernel
    clears each page in a page fault. With one arena, no mapping and no trimming, updates reuse the same pages.

    Call it before the first thread starts, since threads keep their arenas; the command line does so before any
    command. It does nothing if the C library is not glibc.
    """
    try:
        glibc = os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, ValueError, OSError):
        return
    if not glibc:
        return
    library = ctypes.CDLL("libc.so.6")
    settings = {_MMAP_MAX: 0, _TRIM_THRESHOLD: 2**31 - 1, _TOP_PAD: 64 << 20, _ARENA_MAX: 1}
    for option, value in settings.items():
        library.mallopt(option, value)
    _held.append(library)


def peak() -> int:
    """Return the peak memory of this process, in bytes.

    On Linux this is `VmHWM`, since `getrusage` also counts the memory of the parent process.
    """
    try:
        match = re.search(rb"^VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_bytes(), re.MULTILINE)
    except OSError:
        match = None
    if match:
        return int(match[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return getattr(psutil.Process().memory_info(), "peak_wset", 0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def release_free_memory() -> None:
    """Return the currently free memory to Linux, once; do nothing without `keep_freed_memory`.

    Compiling fragments the heap: it leaves many small gaps, and allocates from the large free block that updates used
    before, so later updates need another block. Once returned, the gaps cost nothing.
    """
    for library in _held:
        library.malloc_trim(0)
