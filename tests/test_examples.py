"""Every example runs to its end, on little text."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_backend

# Compilation takes most of an example's time, so all but the quickest are marked slow.
QUICK = "01_"
EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
SMALL = {"EXAMPLE_UPDATES": "2", "EXAMPLE_SENTENCES": "800", "EXAMPLE_EPOCHS": "2"}


def marked(path):
    return pytest.param(path, id=path.stem, marks=[] if path.name.startswith(QUICK) else pytest.mark.slow)


@pytest.mark.parametrize("path", [marked(path) for path in EXAMPLES])
def test_an_example_runs_to_its_end(path, tmp_path):
    environment = os.environ | SMALL | {"MPLBACKEND": "Agg"}
    environment.pop("KERAS_BACKEND", None)  # as for a user who has not set it
    done = subprocess.run([sys.executable, path], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pictures = list(tmp_path.rglob("*.png"))
    assert all(picture.stat().st_size > 1000 for picture in pictures)
    assert pictures or "plain_keras" in path.stem


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_imports_heedful_before_keras(path):
    """Guards the choice of backend: without heedful, Keras would try TensorFlow."""
    lines = path.read_text(encoding="utf-8").splitlines()
    first = {name: next((i for i, line in enumerate(lines) if line.startswith(name)), len(lines))
             for name in ("import heedful", "import keras", "from keras")}  # fmt: skip
    assert first["import heedful"] < min(first["import keras"], first["from keras"])


def test_there_are_five_examples():
    assert len(EXAMPLES) == 5
