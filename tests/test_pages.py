"""The code cells of the pages in docs/ run: all of them under the marker `slow`, otherwise what takes seconds.

Run the slow ones on every backend after a change to a page.
"""

import contextlib
import re
import runpy
import subprocess
import sys
from pathlib import Path

import keras
import pytest

import heedful
from tests.conftest import forget_programs

DOCS = Path(__file__).parent.parent / "docs"
CELL = re.compile(r"^```\{code-cell\} python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = {path.stem: cells for path in sorted(DOCS.glob("*/*.md")) if (cells := CELL.findall(path.read_text("utf-8")))}
# Where the quick run stops: a model that has not learned to end a sentence translates for minutes.
UNTIL = {
    "beam_search": "def beam_search(",
    "keras_all_the_way": "def translate(",
    "translation_by_hand": "def translate(",
}

pytest.importorskip("IPython", reason="the cells show pictures with IPython, of the extra `docs`")
pytest.importorskip("ctranslate2")


class Trained(Exception):
    """A page has called `heedful.train`."""


LONG = (
    "read_aloud", "what_goes_wrong", "keras_all_the_way", "beam_search", "annotated_transformer", "translation_by_hand",
)  # fmt: skip


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in PAGES])
def page(request, tmp_path, monkeypatch):
    """Return the name of a page, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    return request.param


@pytest.fixture
def little_work(monkeypatch):
    """Give `text_pairs` a tenth of the pairs, `fit` two batches, and stop at `heedful.train`."""
    forget_programs()  # those of a page take hundreds of megabytes
    text_pairs, fit = heedful.text_pairs, keras.Model.fit

    def few_batches(self, *args, epochs=1, **kwargs):
        limits = {"steps_per_epoch": 2} | ({"validation_steps": 2} if "validation_data" in kwargs else {})
        return fit(self, *args, **kwargs, **limits, epochs=min(epochs, 2))

    def train(config, *args, **kwargs):
        raise Trained

    monkeypatch.setattr(heedful, "text_pairs", lambda name, part, n: text_pairs(name, part, min(n, max(50, n // 10))))
    monkeypatch.setattr(keras.Model, "fit", few_batches)
    monkeypatch.setattr(heedful, "train", train)


@pytest.mark.any_backend
def test_the_pages_with_cells_are_found():
    assert len(PAGES) == len(list((DOCS / "learn").glob("*.md")))
    assert all(len(cells) > 5 for cells in PAGES.values())


@pytest.mark.any_backend
def test_the_cells_of_a_page_run(page, little_work):
    cells = PAGES[page]
    if page in UNTIL:
        [end] = [number for number, cell in enumerate(cells) if UNTIL[page] in cell]
        cells = cells[:end]
    Path("page.py").write_text("\n\n".join(cells), encoding="utf-8")
    with contextlib.suppress(Trained):
        runpy.run_path("page.py", run_name="__main__")


@pytest.mark.slow
def test_all_cells_of_a_page_run(page, monkeypatch):
    """Runs in a process of its own, compiled as for users."""
    monkeypatch.delenv("JAX_DISABLE_MOST_OPTIMIZATIONS", raising=False)
    Path("page.py").write_text("\n\n".join(PAGES[page]), encoding="utf-8")
    done = subprocess.run([sys.executable, "page.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
