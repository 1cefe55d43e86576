"""Freed memory is held between updates, and given back after a large program is compiled."""

import subprocess
import sys

import pytest

from heedful import backend
from heedful.backend import programs

HELD = """
import numpy as np
from heedful.core.memory import release_free_memory, keep_freed_memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 >> 20  # MiB

if {hold}:
    keep_freed_memory()
before = resident()
blocks = [np.ones(20 << 17) for _ in range(8)]  # 20 MiB each
blocks = []
freed = resident()
release_free_memory()
print(freed - before, resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="depends on glibc's allocator")
def test_freed_memory_is_held_until_it_is_given_back():
    script = [sys.executable, "-c"]
    freed, given = map(int, subprocess.check_output([*script, HELD.format(hold=True)]).split())
    assert freed > 150  # MiB
    assert given < 20
    freed, _ = map(int, subprocess.check_output([*script, HELD.format(hold=False)]).split())
    assert freed < 20  # without `keep_freed_memory`


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's statistics of a process")
def test_peak_memory_excludes_the_parent_process():
    child = "from heedful.core.memory import peak; print(peak() >> 20)"
    parent = f"import subprocess, sys; held = b'1' * (400 << 20); subprocess.run([sys.executable, '-c', {child!r}])"
    assert 5 < int(subprocess.check_output([sys.executable, "-c", parent])) < 100  # MiB


@pytest.mark.skipif(backend.NAME != "jax", reason="uses JAX's compilation events")
def test_memory_is_given_back_when_a_large_program_is_compiled(monkeypatch):
    import jax

    given = []
    monkeypatch.setattr(programs.memory, "release_free_memory", lambda: given.append(True))
    jax.jit(lambda x: x + 1)(1.0)
    assert not given  # a small program
    monkeypatch.setattr(programs, "_LARGE", 0)
    jax.jit(lambda x: x * 3)(1.0)
    assert given
