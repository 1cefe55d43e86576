"""Memory is held between updates, and given back after a large program was compiled."""

import subprocess
import sys

import pytest

from heedful import backend
from heedful.backend import programs

HELD = """
import numpy as np
from heedful.memory import give_back, hold_memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 >> 20  # MiB

if {hold}:
    hold_memory()
before = resident()
blocks = [np.ones(20 << 17) for _ in range(8)]  # 20 MiB each
blocks = []
freed = resident()
give_back()
print(freed - before, resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="how glibc keeps memory")
def test_what_is_freed_stays_until_it_is_given_back():
    script = [sys.executable, "-c"]
    freed, given = map(int, subprocess.check_output([*script, HELD.format(hold=True)]).split())
    assert freed > 150  # MiB
    assert given < 20
    freed, _ = map(int, subprocess.check_output([*script, HELD.format(hold=False)]).split())
    assert freed < 20  # which is why it is held


@pytest.mark.skipif(sys.platform != "linux", reason="what Linux says of a process")
def test_the_peak_is_of_the_process_and_not_of_the_one_that_started_it():
    child = "from heedful.memory import peak; print(peak() >> 20)"
    parent = f"import subprocess, sys; held = b'1' * (400 << 20); subprocess.run([sys.executable, '-c', {child!r}])"
    assert 5 < int(subprocess.check_output([sys.executable, "-c", parent])) < 100  # MiB


@pytest.mark.skipif(backend.NAME != "jax", reason="what JAX tells")
def test_memory_is_given_back_when_a_large_program_is_compiled(monkeypatch):
    import jax

    given = []
    monkeypatch.setattr(programs.memory, "give_back", lambda: given.append(True))
    jax.jit(lambda x: x + 1)(1.0)
    assert not given  # a small one
    monkeypatch.setattr(programs, "_LARGE", 0)
    jax.jit(lambda x: x * 3)(1.0)
    assert given
