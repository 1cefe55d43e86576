"""Tasks and metrics of other packages: tested with the package in examples/tagging."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from heedful.core import plugins
from heedful.core.errors import InputError
from heedful.core.plugins import find_metric, find_task, metric_names, task_names
from heedful.tasks import Task

pytestmark = pytest.mark.any_backend

PACKAGE = Path(__file__).parent.parent / "examples" / "tagging"
WORDS = {"the": "DET", "a": "DET", "cat": "NOUN", "king": "NOUN", "milk": "NOUN", "sees": "VERB", "drinks": "VERB"}
RECIPE = """
name = "tag"
task = "tag"
[data]
train = ["tags.txt"]
test = ["tags.txt"]
max_tokens = 16
batch_tokens = 256
max_shapes = 2
[tokenizer]
kind = "word"
vocab_size = 40
[model]
size = "toy"
num_layers = 1
d_model = 32
num_heads = 4
d_ff = 32
[train]
updates = 60
schedule = "constant"
learning_rate = 1e-2
warmup_updates = 5
validate_every = 30
label_smoothing = 0.0
tensorboard = false
"""


def test_built_in_tasks_implement_every_abstract_method():
    """Only tasks that generate text need `probe`."""
    assert task_names()[:4] == ("translate", "generate", "fill", "classify")
    for name in task_names()[:4]:
        task = find_task(name)
        assert task is find_task(name)
        assert task.name == name
        needed = ["open_text", "prepare", "training_examples", "scored_examples", "build_model", "predictor",
                  "validator", "evaluate", "describe", "random_batch", "wrong_labels"]  # fmt: skip
        for method in needed + ["probe"] * task.writes:
            assert getattr(type(task), method) is not getattr(Task, method), (name, method)
        assert all(metric in metric_names() for metric in task.compared_by)


def test_an_unknown_task_or_metric_is_refused_with_the_known_names():
    with pytest.raises(InputError, match="There is no task 'sing': choose one of translate, generate, fill, classify"):
        find_task("sing")
    with pytest.raises(InputError, match="There is no metric 'blue': choose one of bleu, chrf, accuracy"):
        find_metric("blue")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return a folder into which pip has installed the package."""
    folder = tmp_path_factory.mktemp("packages")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    copy = tmp_path_factory.mktemp("source") / "tagging"
    subprocess.run(["cp", "-r", PACKAGE, copy], check=True)  # pip builds in the source folder
    subprocess.run([*install, "--target", folder, copy], check=True, capture_output=True)
    return folder


@pytest.fixture
def heedful(installed, monkeypatch, cli):
    """A function that runs a command where the package is installed, and returns its output."""
    monkeypatch.syspath_prepend(installed)
    for found in (plugins._entry_points, plugins.find_task, plugins.find_metric):
        found.cache_clear()

    def heedful(*arguments):
        done = cli(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    yield heedful
    for found in (plugins._entry_points, plugins.find_task, plugins.find_metric):
        found.cache_clear()


def test_a_package_adds_a_task_and_a_metric(heedful, tmp_path):
    """The task trains, and is checked, evaluated, compared and listed in `--help`, without changes to heedful."""
    lines = [f"{a}/{WORDS[a]} {b}/{WORDS[b]} {c}/{WORDS[c]}\n" for a in WORDS for b in WORDS for c in WORDS]
    (tmp_path / "tags.txt").write_text("".join(lines[n * 37 % len(lines)] for n in range(len(lines))))
    (tmp_path / "tag.toml").write_text(RECIPE)
    assert "tasks (the key `task` of a recipe): translate, generate, fill, classify, tag" in heedful("train", "--help")
    assert "exact_tags" in heedful("compare", "--help")
    trained = heedful("train", "tag.toml")
    assert "self-check: 12 checks passed" in trained
    assert "test: 100.00% of the tags, 100.00% of the lines right" in trained
    scores = json.loads(heedful("evaluate", "runs/tag", "--json"))
    assert scores["exact_tags"] == 1
    assert scores["intervals"]["exact_tags"] == [1, 1]
    compared = heedful("compare", "runs/tag")
    assert compared.splitlines()[1].split()[:3] == ["run", "seeds", "exact_tags"]
