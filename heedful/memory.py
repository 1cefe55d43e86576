"""How the process gets its memory from Linux, and how much it had."""

import ctypes
import os
import re
import resource
import sys
from pathlib import Path

# The names M_... of <malloc.h>
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_held: list[ctypes.CDLL] = []  # the C library, once it holds memory for us


def hold_memory():
    """Keep freed memory in the process instead of handing it back to Linux after every update.

    A compiled update allocates its activations anew each time. By itself the C library maps fresh pages for them, and
    the kernel clears each page: tens of thousands of page faults an update. One arena, no mapping and no
    trimming leave the pages where they are; an update of size `tutorial` with 4,096 tokens fell from 520 to 350 ms.

    Call it before the first thread starts, since threads keep the arenas that they have: the command line does so
    before any verb. Does nothing where the C library is not glibc.
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


def peak():
    """Return the most memory that this process has had, in bytes.

    On Linux that is what the kernel says of the program itself: what `getrusage` tells counts the process too that
    started it.
    """
    try:
        found = re.search(rb"^VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_bytes(), re.MULTILINE)
    except OSError:
        found = None
    if found:
        return int(found[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def give_back():
    """Hand to Linux, once, what is free at this moment; nothing where memory is not held.

    Compiling leaves many small holes, and takes its own memory out of the large one in which the updates before found
    their place: the next ones then need a new one beside it. Given back, holes cost nothing, and the updates' memory is
    one piece again.
    """
    for library in _held:
        library.malloc_trim(0)
