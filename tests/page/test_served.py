"""A page that a server sends: it asks the server, and follows a training."""

from pathlib import Path

import numpy as np
import pytest

from heedful.core.errors import InputError
from heedful.data.tokenizer import Tokenizer
from heedful.inspection.nearest_pairs import NearestPairs
from heedful.inspection.page.contents import contents_of
from heedful.inspection.page.document import build_document
from heedful.inspection.page.model import PageModel
from heedful.runs.run import Run
from heedful.serve import pages
from heedful.serve.server import Options, load_service
from tests.conftest import quiet
from tests.page.conftest import READY
from tests.serve.conftest import running

pytestmark = pytest.mark.any_backend


@pytest.fixture
def served(whole):
    """A service with the run `whole`, and its address."""
    run = Run.open(whole.path)
    run = run.with_text([Path(run.config.data.train[0]).parent])
    service = load_service([run], [run.config.decode], Options(slots=2), [("pt", "en")], quiet)
    with running(service) as address:
        yield service, f"{address}/page/{run.path.name}"
    service.runs[run.path.name].engine.stop()


@pytest.fixture
def page(browser):
    page, complaints = browser.new_page(), []
    page.on("console", lambda one: complaints.append(one.text) if one.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    page.close()
    assert not complaints


@pytest.mark.slow
def test_a_served_page_follows_the_training(whole, served, page, monkeypatch):
    monkeypatch.setattr(pages, "POLL", 0.05)
    page.goto(f"{served[1]}#view=training")
    page.locator(READY).wait_for(state="attached")
    before = page.locator("section[aria-label=Curves] .hint").first.inner_text()
    for update in (2000, 2010):
        whole.log.append({"update": update, "valid_loss": 1.25})
    page.get_by_text("2,010").first.wait_for()
    assert page.locator("section[aria-label=Curves] .hint").first.inner_text() != before


ASK = """async () => {
  const model = window.heedful.model, about = await model.about(), earlier = about.checkpoints.length - 1;
  const { ids: source } = await model.split({ text: about.examples[0] });
  const streamed = async (options) => {
    const events = [];
    for await (const event of model.write({ source, ...options })) events.push(event);
    return events;
  };
  const plain = (layer) => ({ ...layer, weights: [...layer.weights] });
  const look = async (options) => {
    const { maps, ...rest } = await model.look({ source, target, ...options });
    const all = Object.entries(maps).map(([kind, layers]) => [kind, layers.map(plain)]);
    return { ...rest, maps: Object.fromEntries(all) };
  };
  const written = await streamed({}), target = written.at(-1).done.ids, off = { cross: { 0: { 1: true } } };
  const trees = await streamed({ width: 3, off });
  const variants = [
    { source, target }, { source: source.slice(1), target, off }, { source: [], target: target.slice(1) },
  ];
  return [
    source, written, await look({}), await look({ off }), trees.at(-1), await model.score({ variants }),
    await model.score({ variants, checkpoint: earlier }), [about.kinds, about.ends, about.layers, about.task],
  ];
}"""


def test_a_served_page_answers_like_one_that_computes(whole, served, page, browser, tmp_path):
    """The same questions, one page with weights and one without: one interface, two implementations."""
    one = contents_of(whole, "float32")
    (tmp_path / "page.html").write_text(build_document("t", [one.description], [one.weights]), encoding="utf-8")
    page.goto(served[1])
    page.locator(READY).wait_for(state="attached")
    assert "Computed by the server" in page.locator("footer").inner_text()
    found = page.evaluate(ASK)
    page.goto((tmp_path / "page.html").as_uri())
    page.locator(READY).wait_for(state="attached")
    assert_close(found, page.evaluate(ASK))


def assert_close(found, want, where=""):
    """Compare JSON: numbers within 1e-4, everything else exactly; a map's keys that only one has are left out."""
    if isinstance(want, dict):
        for key in want.keys() & found.keys():
            assert_close(found[key], want[key], f"{where}.{key}")
    elif isinstance(want, list):
        assert len(found) == len(want), where
        for number, (left, right) in enumerate(zip(found, want, strict=True)):
            assert_close(left, right, f"{where}[{number}]")
    elif isinstance(want, float):
        np.testing.assert_allclose(found, want, atol=1e-4, err_msg=where)
    else:
        assert found == want, where


@pytest.mark.slow
def test_every_view_of_a_served_page(served, page):
    page.goto(served[1])
    page.locator(READY).wait_for(state="attached")
    assert page.locator("section[aria-label='Nearest training pairs'] tbody tr").first.inner_text()
    for name in page.locator("[role=tab]").all_inner_texts():
        page.get_by_role("tab", name=name).click()
        page.locator("#view section").first.wait_for()
    page.get_by_role("tab", name="Why this word?").click()
    page.locator(".target .word").first.wait_for()


def test_bad_questions_are_refused_and_change_nothing(whole):
    model = PageModel(Run.open(whole.path))
    before = model.look([5, 6], [7])
    wrong = [
        {"source": [5], "target": [10**6]}, {"source": [-1], "target": []}, {"source": "text", "target": []},
        {"source": [True], "target": []}, {"source": [5] * 5000, "target": []}, {"source": [5], "target": [7] * 5000},
        {"source": [5], "target": [], "off": {"cross": {"99": {"0": True}}}},
        {"source": [5], "target": [], "off": {"nothing": {"0": {"0": True}}}},
        {"source": [5], "target": [], "off": {"cross": {"-1": {"0": True}}}},
        {"source": [5], "target": [], "off": [1]}, {"source": [5], "target": [], "checkpoint": 99},
        {"source": [5], "target": [], "checkpoint": True},
    ]  # fmt: skip
    for arguments in wrong:
        with pytest.raises(InputError):
            model.look(**arguments)
    for arguments in ({"width": 0}, {"width": 1000}, {"prefix": [10**6]}):
        with pytest.raises(InputError):
            list(model.write([5, 6], **arguments))
    with pytest.raises(InputError):
        list(model.score([{"source": [5], "target": [6]}] * 5000))
    assert model.look([5, 6], [7]) == before


def test_nearest_pairs_share_rare_tokens():
    pairs = [("the cat sat", "1"), ("the dog sat", "2"), ("the dog ran", "3"), ("a zebra", "4")]
    index = NearestPairs(pairs, Tokenizer.train([source for source, _ in pairs], kind="word", vocab_size=50))
    found = index("the dog ran")
    assert [pair.target for pair in found] == ["3", "2", "1"]
    assert found[0].similarity == pytest.approx(1)
    assert [pair.target for pair in index("zebra")] == ["4"]
    assert index("") == []


def test_a_checkpoint_is_named_by_its_update(whole):
    """A training adds checkpoints, so their positions in the list change; their updates do not."""
    model = PageModel(Run.open(whole.path))
    updates, target = model.about["checkpoints"], [7, 8]
    assert len(updates) > 1
    scores = {update: next(model.score([{"source": [5, 6], "target": target}], update))[1] for update in updates}
    assert scores[updates[0]] != scores[updates[-1]]
    assert scores[updates[-1]] == next(model.score([{"source": [5, 6], "target": target}]))[1]
    with pytest.raises(InputError, match="no checkpoint at update 123456"):
        model.look([5, 6], target, checkpoint=123456)
