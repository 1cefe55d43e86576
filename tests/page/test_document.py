"""The file of a page: its weights, its modules, its policy, and what a stranger's run cannot do with it."""

import base64
import hashlib
import json
import re

import numpy as np
import pytest

import heedful
from heedful.cli import main
from heedful.core.errors import InputError
from heedful.inspection.page import kernel
from heedful.inspection.page.contents import contents_of, thinned
from heedful.inspection.page.document import WEB, as_json, build_document, engine_text
from heedful.inspection.page.packing import pack, rounded
from heedful.runs.run import Run
from tests.page.conftest import READY, page_of

pytestmark = pytest.mark.any_backend

SCRIPT = "</script><script>window.stolen = 1</script><img src=x onerror='window.stolen = 2'>"


@pytest.fixture
def weights(rng):
    return {
        "embedding/embeddings": rng.standard_normal((7, 4)).astype(np.float32),
        "block/kernel": rng.standard_normal((4, 6)).astype(np.float32),
        "block/bias": rng.standard_normal(6).astype(np.float32),
        "text_input/positions/embeddings": rng.standard_normal((9, 4)).astype(np.float32),
    }


@pytest.mark.parametrize("kind", ["float32", "float16", "int8"])
def test_packed_weights_can_be_read_back_from_the_table(weights, kind):
    content, table = pack(weights, kind)
    assert [entry["name"] for entry in table] == sorted(weights)
    for entry in table:
        assert entry["at"] % 4 == 0
        count = int(np.prod(entry["shape"]))
        found = np.frombuffer(content, np.dtype(entry["type"]).newbyteorder("<"), count, entry["at"]).astype(np.float32)
        found = found.reshape(entry["shape"])
        if "scales" in entry:
            scales = np.frombuffer(content, "<f4", entry["shape"][entry["axis"]], entry["scales"])
            found = found * np.expand_dims(scales, 1 - entry["axis"])
        np.testing.assert_array_equal(found, rounded(weights, kind)[entry["name"]])
        if entry["type"] == "float32":
            np.testing.assert_array_equal(found, weights[entry["name"]])


def test_vectors_and_positions_are_never_rounded(weights):
    kinds = {entry["name"]: entry["type"] for entry in pack(weights, "int8")[1]}
    assert kinds == {"embedding/embeddings": "int8", "block/kernel": "int8", "block/bias": "float32",
                     "text_input/positions/embeddings": "float32"}  # fmt: skip


def test_numbers_beyond_half_precision_stay_finite():
    found = rounded({"kernel": np.array([[1e6, -1e6]], np.float32)}, "float16")["kernel"]
    assert found.tolist() == [[65504.0, -65504.0]]


def test_the_vendored_modules_are_those_that_the_table_names():
    table = (WEB / "vendor" / "README.md").read_text(encoding="utf-8")
    named = dict(re.findall(r"`(\w+\.mjs)` .* `([0-9a-f]{64})`", table))
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (WEB / "vendor").glob("*.mjs")}
    assert named == found


def test_the_kernel_is_compiled_from_its_source():
    pytest.importorskip("wasmtime")
    [code] = re.findall(r'"([A-Za-z0-9+/=]+)"', kernel.RESULT.read_text(encoding="utf-8"))
    assert base64.b64decode(code) == kernel.compiled()


def test_the_engine_is_one_script():
    text = engine_text()
    assert not re.search(r"^(import|export)\b", text, re.MULTILINE)
    assert "</script" not in text
    names = re.findall(r"^(?:const|function\*?|class|async function)\s+(\w+)", text, re.MULTILINE)
    assert len(names) == len(set(names))


def test_every_module_is_checked_and_described():
    for path in WEB.rglob("*.js"):
        if path.name != "linear.js":
            lines = path.read_text(encoding="utf-8").split("\n")
            assert lines[0] == "// @ts-check", path
            assert lines[1].startswith("// "), path


def test_json_cannot_end_its_script_element():
    assert "<" not in as_json({"name": SCRIPT})
    assert json.loads(as_json({"name": SCRIPT})) == {"name": SCRIPT}


def test_thinned_keeps_the_first_and_the_last():
    assert thinned(range(10), 20) == list(range(10))
    found = thinned(range(1000), 50)
    assert (len(found), found[0], found[-1]) == (50, 0, 999)


def test_a_document_asks_for_nothing(whole):
    one = contents_of(whole, "float32")
    text = build_document("t", [one.description], [one.weights])
    assert "default-src 'none'" in text
    outside = re.sub(r'<script type="(?:application/json|text/plain)"[^>]*>[^<]*</script>', "", text)
    assert not re.search(r"(?:src|href)=[\"']?https?:", outside)


def test_a_stranger_cannot_put_script_into_a_page(whole, browser, tmp_path):
    """A run from elsewhere: markup in its name, in a token, in a log, in a score and in a sample."""
    run = Run.open(whole.path.rename(whole.path.with_name("<img src=x onerror=stolen=1>")))
    with (run.path / "log.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"update": 9, SCRIPT: 1.0, "valid_loss": 1.0}) + "\n")
    path = run.path / "source.tokenizer.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    data["model"]["vocab"] = {SCRIPT if name == "gato" else name: i for name, i in data["model"]["vocab"].items()}
    path.write_text(json.dumps(data), encoding="utf-8")
    scores = json.loads((run.path / "scores.json").read_text(encoding="utf-8"))
    (run.path / "scores.json").write_text(json.dumps([one | {"data": SCRIPT} for one in scores]), encoding="utf-8")
    out = tmp_path / "page.html"
    assert main(["page", str(run.path), str(out), "--type", "float32", "--example", SCRIPT]) == 0
    for view in ("why", "maps", "training", "beam"):
        with page_of(browser, out, f"#view={view}") as page:
            assert page.evaluate("window.stolen") is None
            assert page.locator("img").count() == 0
            assert page.get_by_role("textbox").input_value() == SCRIPT


def test_a_page_cannot_send_anything(whole, browser, tmp_path):
    out = tmp_path / "page.html"
    assert main(["page", str(whole.path), str(out), "--type", "float32"]) == 0
    tries = [
        "fetch('https://example.org/')",
        "new WebSocket('wss://example.org/')",
        "navigator.sendBeacon('https://example.org/') || Promise.reject()",
    ]
    context = browser.new_context()
    page = context.new_page()
    asked = []
    context.route("**/*", lambda route: (asked.append(route.request.url), route.continue_()))
    page.goto(out.as_uri())
    page.locator(READY).wait_for(state="attached")
    for attempt in tries:
        page.evaluate(f"async () => {{ try {{ await {attempt}; }} catch {{}} }}")
    page.wait_for_timeout(200)
    context.close()
    assert asked == [out.as_uri()]


def test_the_weights_must_fit_the_config(whole):
    config = whole.path / "config.json"
    data = json.loads(config.read_text(encoding="utf-8"))
    data["model"]["d_model"] = 99_000
    config.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(InputError, match="does not fit"):
        contents_of(Run.open(whole.path))


def test_a_page_is_refused_where_there_are_no_weights(whole, tmp_path, capsys):
    (whole.path / "model.safetensors").unlink()
    assert main(["page", str(whole.path), str(tmp_path / "page.html")]) == 2
    assert "train it first" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()


def test_a_notebook_shows_the_page(whole, browser):
    """The page is in a frame without an address of its own."""
    shown = heedful.show(whole.path, examples=["o gato bebe"], kind="float32", height=700)._repr_html_()
    complaints = []
    page = browser.new_page()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.set_content(f"<!doctype html><p>cell</p>{shown}")
    frame = page.frame_locator("iframe")
    frame.locator(READY).wait_for(state="attached")
    assert frame.get_by_role("textbox").input_value() == "o gato bebe"
    frame.get_by_role("tab", name="Attention maps").click()
    frame.locator("canvas").first.wait_for()
    page.close()
    assert not complaints
