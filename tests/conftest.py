"""Fixtures and helpers of all tests. Test sizes are distinct primes or products of them: a swapped axis fails."""

import contextlib
import ctypes
import functools
import gc
import http.server
import io
import os
import shutil
import signal
import subprocess
import sys
import threading
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")  # heedful's default, even if Keras is imported first
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow logs to standard error at start-up
# XLA compiling small programs takes most of the tests' time; this halves it. Tests of numerics use `optimized`.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
if os.environ["KERAS_BACKEND"] == "jax" and version("jaxlib").split(".")[:2] < ["0", "11"]:  # later ones lack the flag
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")
if "PYTEST_XDIST_WORKER" in os.environ:  # one worker per core, with one thread each: they would get in each other's way
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw")) % len(cores)]})
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")

import keras
import numpy as np
import pytest

from heedful import backend
from heedful.cli import main
from heedful.config import Config
from heedful.config.settings import override
from heedful.core import memory
from heedful.data.corpus import Corpus
from heedful.runs.run import Run
from heedful.training import machine

# Commands run in this process too; it must give memory back, or the tests would need gigabytes.
memory.keep_freed_memory = lambda: None
# Bytes of a process of the tests, after a file and after a test, from which on it forgets its programs: compiling them
# again takes a tenth of the time.
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
LARGE = max(1_100_000_000, MEMORY // (4 * WORKERS))
VERY_LARGE = 2 * LARGE
LEFT = pytest.StashKey[int]()  # bytes of the process after it has forgotten its programs
GROWTH = 400_000_000  # bytes that a process must have grown by since it has forgotten its programs
# Background jobs of a shell ignore SIGINT, and processes that tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header():
    return f"keras {keras.__version__} on {keras.backend.backend()}"


def pytest_collection_finish():
    """Exempt what the imported modules hold from garbage collection, which would take a tenth of the tests' time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """Forget compiled programs if this process has become large: they add up to gigabytes."""
    if not sys.platform.startswith("linux"):
        return
    most = VERY_LARGE if nextitem is not None and nextitem.path == item.path else LARGE
    if resident_bytes() > max(most, item.session.stash.get(LEFT, 0) + GROWTH):
        forget_programs()
        item.session.stash[LEFT] = resident_bytes()


def forget_programs():
    """Give back the memory of all compiled programs."""
    if backend.NAME == "jax":
        import jax

        jax.clear_caches()
    gc.collect()
    gc.freeze()
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def resident_bytes():
    """Return how much memory this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(autouse=True)
def _seeded():
    if backend.NAME == "jax":  # Keras would import an installed TensorFlow, which takes seconds and 400 MB
        backend.set_seed(0)
        np.random.seed(0)  # noqa: NPY002 - for what draws from it
    else:
        keras.utils.set_random_seed(0)
    if torch := sys.modules.get("torch"):  # of models that tests compare with, on any backend
        torch.manual_seed(0)


@pytest.fixture
def optimized():
    """Compile with all optimizations, as for users."""
    if backend.NAME != "jax":
        yield
        return
    import jax

    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()  # programs in memory do not tell by which flags they were compiled
    yield
    jax.config.update("jax_disable_most_optimizations", before)
    jax.clear_caches()


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def normal(rng):
    return lambda *shape: rng.normal(size=shape).astype("float32")


@pytest.fixture
def numpy():
    return backend.to_numpy


@pytest.fixture(autouse=True, scope="session")
def cache(tmp_path_factory):
    """Keep the encoded text and compiled programs of the tests in their own folder.

    Compiled programs are kept from the start, in one folder for all workers: many tests build the same small models.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEEDFUL_CACHE", str(folder))
        backend.keep_compilations()
        yield folder


@pytest.fixture(autouse=True, scope="session")
def _small_products():
    """Shrink the products with which every validation measures the machine, to save time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "SIZES", (128, 128, 128))
        yield


PAIRS = [
    ("o gato bebe", "the cat drinks"),
    ("a vaca come", "the cow eats"),
    ("o gato come", "the cat eats"),
    ("a vaca bebe água", "the cow drinks water"),
    ("o rei vê a vaca", "the king sees the cow"),
    ("o rei come pão", "the king eats bread"),
    ("a menina vê o rei", "the girl sees the king"),
    ("a menina bebe leite", "the girl drinks milk"),
    ("o gato vê a menina", "the cat sees the girl"),
    ("a vaca vê o gato", "the cow sees the cat"),
] * 2


@pytest.fixture
def corpus():
    return Corpus.from_pairs(PAIRS, "twenty sentences")


def write_pairs(folder, pairs=PAIRS):
    """Write two parallel files; return their paths."""
    paths = folder / "text.pt", folder / "text.en"
    for side, path in enumerate(paths):
        path.write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    return paths


@pytest.fixture
def text_files(tmp_path):
    """Two parallel files of twenty sentences."""
    return write_pairs(tmp_path)


# A model and a training that takes seconds; part of every test recipe.
TINY = """
[model]
size = "toy"
num_layers = 1
d_model = 16
num_heads = 2
d_ff = 24
tie = "all"
dropout = 0.2
max_length = 24
[train]
updates = 6
schedule = "constant"
learning_rate = 1e-2
warmup_updates = 2
validate_every = 3
check = false
"""

SMALL = (
    """
name = "small"
[data]
train = ["{0}", "{1}"]
valid = ["{0}", "{1}"]
test = ["{0}", "{1}"]
max_tokens = 20
batch_sentences = 5
max_shapes = 2
[tokenizer]
kind = "word"
vocab_size = 60
"""
    + TINY
    + "validate_sentences = 7\n"
)


ONE_SIDED = (
    """
task = "{task}"
[data]
train = ["{text}"]
test = ["{text}"]
max_tokens = 16
batch_sentences = 4
max_shapes = 2
documents = "{documents}"
held_out = 0.2
[tokenizer]
kind = "{kind}"
vocab_size = 60
"""
    + TINY.replace("max_length = 24", "max_length = 16")
    + """label_smoothing = 0.0
prompt = "the"
"""
)
KINDS = {"generate": ("whole", "char"), "fill": ("labelled", "word"), "classify": ("whole", "word")}


def write_labelled(folder):
    """Write a text whose lines begin with a label and a tab; return its path."""
    path = folder / "labelled.txt"
    lines = [f"{'animal' if 'c' in target.split()[1] else 'human'}\t{target}" for _, target in PAIRS]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def write_recipe(folder, task="translate", pairs=PAIRS):
    """Write a recipe that trains in seconds on twenty sentences, and its text; return its path."""
    path = folder / f"{task}.toml"
    if task == "translate":
        path.write_text(SMALL.format(*write_pairs(folder, pairs)), encoding="utf-8")
        return path
    documents, kind = KINDS[task]
    text = write_labelled(folder)
    if task == "generate":
        text = folder / "plain.txt"
        text.write_text("".join(f"{target}\n" for _, target in PAIRS), encoding="utf-8")
    path.write_text(ONE_SIDED.format(task=task, text=text, documents=documents, kind=kind), encoding="utf-8")
    return path


@pytest.fixture
def labelled(tmp_path):
    return write_labelled(tmp_path)


@pytest.fixture
def recipe_of(tmp_path):
    return lambda task: write_recipe(tmp_path, task)


@pytest.fixture
def recipe(tmp_path):
    return write_recipe(tmp_path)


@pytest.fixture
def config(recipe):
    return Config.from_toml(recipe)


def change(config, *arguments):
    """Return the config overridden by command-line settings."""
    return override(config, arguments)


def fast(cases, count):
    """Return test cases of which only the first `count` run by default; the others are slow variations."""
    return [case if i < count else pytest.param(case, marks=pytest.mark.slow) for i, case in enumerate(cases)]


# A training there takes a minute, most of it tracing.
SLOW_ON_TENSORFLOW = pytest.mark.slow if backend.NAME == "tensorflow" else lambda test: test


def quiet(text):
    """Discard a report."""


@pytest.fixture(scope="session")
def trained(tmp_path_factory, cache):
    """A folder with a recipe, its text and its trained run, `run`; tests must copy it, not change it."""
    folder = tmp_path_factory.mktemp("trained")
    assert main(["train", str(write_recipe(folder)), "--run", str(folder / "run")]) == 0
    return folder


@pytest.fixture
def run(trained, tmp_path):
    """A copy of a trained run's folder."""
    return shutil.copytree(trained / "run", tmp_path / "run")


@pytest.fixture
def whole(run):
    """A run that was trained without interruption."""
    return Run.open(run)


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        """Print nothing."""


@contextlib.contextmanager
def served_folder(folder):
    """Serve the files of a folder, and yield the address."""
    handler = functools.partial(QuietHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def talk(arguments, lines):
    """Start a heedful command and send it the lines, each after the previous answer; return the answers."""
    command, answers = [sys.executable, "-m", "heedful", *map(str, arguments)], []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        (alarm := threading.Timer(200, process.kill)).start()  # or a hanging command would hang the test
        for line in lines:
            process.stdin.write(f"{line}\n".encode())
            process.stdin.flush()
            answers.append(process.stdout.readline().decode())
        process.stdin.close()
        assert process.stdout.read() == b""
        alarm.cancel()
    return answers


@pytest.fixture
def cli(tmp_path, monkeypatch, capsysbinary):
    """A function that runs a command in this process, in `tmp_path`, and returns a `CompletedProcess`."""

    def run(*arguments, stdin="", main=main, **environment):
        monkeypatch.chdir(tmp_path)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        content = stdin if isinstance(stdin, bytes) else stdin.encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        capsysbinary.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as leave:
            code = leave.code
        out, err = capsysbinary.readouterr()
        return subprocess.CompletedProcess(arguments, code or 0, out, err)

    return run


def _missing(reason):
    if os.environ.get("HEEDFUL_NEEDS_CHROMIUM"):
        pytest.fail(f"{reason}, and HEEDFUL_NEEDS_CHROMIUM is set")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def browser():
    """One browser for all tests: Debian's Chromium, or the one that HEEDFUL_CHROMIUM names.

    Without one the tests are skipped, unless HEEDFUL_NEEDS_CHROMIUM is set, as in `.ci/run`.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("playwright is not installed")
    path = os.environ.get("HEEDFUL_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        _missing("there is no Chromium here")
    with sync_playwright() as playwright:
        # the sandbox of Chromium needs a user that is not root
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()
