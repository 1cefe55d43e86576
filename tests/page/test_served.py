"""A page that a server sends: it computes in the browser, and follows a training."""

import pytest

from heedful.run import Run
from heedful.serve import pages
from heedful.serve.server import Options, load_service
from tests.conftest import quiet
from tests.page.conftest import READY
from tests.serve.conftest import running

pytestmark = pytest.mark.any_backend


def test_a_served_page_computes_and_follows_the_training(whole, browser, monkeypatch):
    monkeypatch.setattr(pages, "POLL", 0.05)
    run = Run.open(whole.path)
    service = load_service([run], [run.config.decode], Options(slots=2), [("pt", "en")], quiet)
    with running(service) as address:
        page, complaints = browser.new_page(), []
        page.on("console", lambda one: complaints.append(one.text) if one.type in ("error", "warning") else None)
        page.goto(f"{address}/page/{run.path.name}#view=training")
        page.locator(READY).wait_for(state="attached")
        before = page.locator("section[aria-label=Curves] .hint").first.inner_text()
        for update in (2000, 2010):
            run.log.append({"update": update, "valid_loss": 1.25})
        page.get_by_text("2,010").first.wait_for()
        assert page.locator("section[aria-label=Curves] .hint").first.inner_text() != before
        page.get_by_role("tab", name="Why this word?").click()
        page.locator(".target .word").first.wait_for()
        page.close()
    service.runs[run.path.name].engine.stop()
    assert not complaints
