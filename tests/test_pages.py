"""The code cells of the pages in docs/ run: with little text and training always, as they are under `slow`."""

import dataclasses
import re
import runpy
import subprocess
import sys
from pathlib import Path

import keras
import pytest

import heedful

DOCS = Path(__file__).parent.parent / "docs"
CELL = re.compile(r"^```\{code-cell\} python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = {path.stem: cells for path in sorted(DOCS.glob("*/*.md")) if (cells := CELL.findall(path.read_text("utf-8")))}

pytest.importorskip("IPython", reason="the cells show pictures with IPython, of the extra `docs`")
pytest.importorskip("ctranslate2")

# Where the run with little training stops: a model that has not learned to end a sentence translates for minutes.
UNTIL = {
    "beam_search": "def beam_search(",
    "keras_all_the_way": "def translate(",
    "translation_by_hand": "def translate(",
    "from_notebook_to_production": 'shell("evaluate"',
}


@pytest.fixture(params=PAGES)
def page(request, tmp_path, monkeypatch):
    """Return the name of a page, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    return request.param


@pytest.fixture
def little_work(page, monkeypatch):
    """Give `text_pairs` a tenth of the pairs, `fit` two batches, and `heedful.train` a fiftieth of the updates."""
    text_pairs, fit, train, resume = heedful.text_pairs, keras.Model.fit, heedful.train, heedful.resume

    def few_batches(self, *args, epochs=1, **kwargs):
        if "steps_per_epoch" not in kwargs:  # heedful's own calls name it
            kwargs |= {"steps_per_epoch": 2} | ({"validation_steps": 2} if "validation_data" in kwargs else {})
        return fit(self, *args, **kwargs, epochs=min(epochs, 2))

    def few_updates(config):
        updates = config.train.updates // 50
        fewer = dataclasses.replace(config.train, updates=updates, validate_every=updates, validate_sentences=8)
        return dataclasses.replace(config, train=fewer)

    monkeypatch.setattr(heedful, "text_pairs", lambda name, part, n: text_pairs(name, part, min(n, max(50, n // 10))))
    monkeypatch.setattr(keras.Model, "fit", few_batches)
    monkeypatch.setattr(heedful, "train", lambda config, *args, **kwargs: train(few_updates(config), *args, **kwargs))
    monkeypatch.setattr(heedful, "resume", lambda folder, config: resume(folder, config=few_updates(config)))


def test_the_pages_with_cells_are_found():
    assert len(PAGES) == len(list((DOCS / "learn").glob("*.md")))
    assert all(len(cells) > 5 for cells in PAGES.values())


def test_the_cells_of_a_page_run(page, little_work):
    cells = PAGES[page]
    if page in UNTIL:
        [end] = [number for number, cell in enumerate(cells) if UNTIL[page] in cell]
        cells = cells[:end]
    Path("page.py").write_text("\n\n".join(cells), encoding="utf-8")
    runpy.run_path("page.py", run_name="__main__")


@pytest.mark.slow
def test_the_cells_of_a_page_run_as_they_are(page, monkeypatch):
    """Runs in a process of its own, compiled as for users."""
    monkeypatch.delenv("JAX_DISABLE_MOST_OPTIMIZATIONS", raising=False)
    Path("page.py").write_text("\n\n".join(PAGES[page]), encoding="utf-8")
    done = subprocess.run([sys.executable, "page.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
