"""The browser example: transformers.js in Chromium translates as heedful does, without a request to another server."""

import dataclasses
import shutil
import subprocess
from pathlib import Path

import pytest

from heedful.interop.export import onnx
from heedful.interop.export.parity import export_checked
from heedful.runs.run import Run
from tests.conftest import PAIRS, served_folder

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "browser"
SOURCES = [source for source, _ in PAIRS]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not shutil.which("npm"), reason="npm is not installed")]


@pytest.fixture
def site(tmp_path, whole):
    """The address of a server of the example, with its packages and the export of a run."""
    folder = shutil.copytree(EXAMPLE, tmp_path / "site")
    subprocess.run(
        ["npm", "install", "--ignore-scripts", "--omit=optional"], cwd=folder, check=True, capture_output=True
    )
    export_checked(whole, onnx.FORMAT, folder / "model", SOURCES, quantization="int8", report=lambda line: None)
    with served_folder(folder) as address:
        yield f"{address}/index.html"


def test_the_page_translates_as_heedful_does(site, whole, browser):
    decode = dataclasses.replace(whole.config.decode, beam_size=1, max_ratio=1e6, max_length=23)
    expected = Run.open(whole.path).task.predictor([whole], decode).translate(SOURCES)
    for query in ("", "?type=int8"):
        page, asked, failed = browser.new_page(), [], []
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        page.on("pageerror", lambda error, failed=failed: failed.append(str(error)))
        page.goto(site + query)
        page.wait_for_selector("#translate:enabled", timeout=60_000)
        page.fill("#source", "\n".join(SOURCES))
        page.click("#translate")
        page.wait_for_function("document.getElementById('status').textContent.endsWith(' s.')", timeout=120_000)
        found = page.inner_text("#target").split("\n")
        assert len(found) == len(SOURCES)
        if not query:
            assert [line.split()[:20] for line in found] == [line.split()[:20] for line in expected]
        assert failed == []
        own = site.rsplit("/", 1)[0]
        assert [url for url in asked if not url.startswith((own, "blob:", "data:"))] == []
