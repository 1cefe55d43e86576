"""Independent programs use all devices of a process, and compute the same there."""

import gc
import json
import os
import subprocess
import sys
import threading
import time

import keras
import numpy as np
import pytest

from heedful import backend
from heedful.backend import threads
from tests.conftest import PAIRS

pytestmark = pytest.mark.any_backend

SCRIPT = """
import json, sys
from heedful import backend
from heedful.backend import threads
from heedful.inference.translator import Translator
from heedful.runs.run import Run

used, copy = set(), threads._copy

def recorded(variable, device):
    used.add(device.id)
    return copy(variable, device)

threads._copy = recorded
run, lines, limit = Run.open(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3])
with backend.at_most_devices(limit):
    translator = Translator.from_run(run, run.config.decode.for_call(batch_size=2, max_length=8))
    texts = [(best.text, best.score) for best, *_ in translator.n_best(lines)]
    searched = sorted(used)
    model = translator.model
    used.clear()
    for variable in model.trainable_variables:  # the copies must follow
        variable.assign(variable.value * 1.25)
    changed = [(best.text, best.score) for best, *_ in translator.n_best(lines)]
    losses = [row.tolist() for row in translator.score(lines, lines)]
print(json.dumps([searched, texts, changed, losses]))
"""


def outcome(run, devices, limit=0):
    """Return the devices that searched, and results, of a process that sees some number of devices."""
    lines = [source for source, _ in PAIRS]
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(run), json.dumps(lines), str(limit)],
        env=os.environ | {"XLA_FLAGS": flags}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    searched, *results = json.loads(done.stdout.splitlines()[-1])
    return searched, results


@pytest.mark.slow
@pytest.mark.skipif(backend.NAME != "jax", reason="other backends use one device")
@pytest.mark.parametrize(
    ("devices", "limit", "used"), [(2, 0, [0, 1]), pytest.param(3, 2, [0, 1], marks=pytest.mark.slow)]
)
def test_a_search_uses_every_device_and_finds_the_same(run, devices, limit, used):
    alone, wanted = outcome(run, 1)
    assert alone == []
    several, found = outcome(run, devices, limit)
    assert several == used
    assert found == wanted
    assert wanted[0] != wanted[1]


def test_items_are_spread_over_threads_in_order():
    names = set()

    def square(number):
        names.add(threading.current_thread().name)
        return number * number

    assert list(backend.spread(square, range(50), 4)) == [number * number for number in range(50)]
    assert threading.main_thread().name not in names
    names.clear()
    assert list(backend.spread(square, range(50), 1)) == [number * number for number in range(50)]
    assert list(backend.spread(square, [7], 4)) == [49]
    assert names == {threading.main_thread().name}


def test_items_are_read_a_little_ahead():
    """Guards against batches of a whole text in memory."""
    read = []

    def items():
        for number in range(1000):
            read.append(number)
            yield number

    results = backend.spread(lambda number: number, items(), 2)
    assert next(results) == 0
    assert len(read) < 10


def test_what_waits_is_dropped_when_the_results_are_no_longer_wanted():
    started = []

    def work(number):
        started.append(number)
        time.sleep(0.05)
        return number

    results = backend.spread(work, range(100), 2)
    assert next(results) == 0
    results.close()
    assert len(started) < 6


@pytest.mark.skipif(backend.NAME != "jax", reason="other backends use one device")
def test_a_copy_is_kept_until_its_variable_changes(monkeypatch):
    import jax

    monkeypatch.setattr(threads, "_copies", {})
    variable, other = (keras.Variable(np.full(3, number, np.float32)) for number in (1, 2))
    device = jax.local_devices()[0]
    first = threads._copy(variable, device)
    assert threads._copy(variable, device) is first
    variable.assign(np.full(3, 5, np.float32))
    np.testing.assert_array_equal(threads._copy(variable, device), [5, 5, 5])
    threads._copy(other, device)
    assert len(threads._copies) == 2
    del other
    gc.collect()
    assert len(threads._copies) == 1
    threads.forget_copies()
    assert threads._copies == {}


def test_an_error_in_a_thread_is_raised():
    def fail(number):
        if number == 3:
            raise ValueError("three")
        return number

    with pytest.raises(ValueError, match="three"):
        list(backend.spread(fail, range(10), 2))
