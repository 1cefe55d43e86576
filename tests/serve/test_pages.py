"""Served pages, and a training that is followed while it goes on."""

import json

import httpx
import pytest

from heedful.run import Run
from heedful.serve import pages
from tests.page.conftest import READY, browser  # noqa: F401 - a fixture
from tests.serve.conftest import running

pytestmark = pytest.mark.any_backend


def read_events(address, name, count, **headers):
    """Return the first events of a run as (id, content)."""
    found = []
    with httpx.stream("GET", f"{address}/api/runs/{name}/events", headers=headers, timeout=20) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        number = None
        for line in answer.iter_lines():
            if line.startswith("id: "):
                number = int(line[4:])
            elif line.startswith("data: "):
                found.append((number, json.loads(line[6:])))
                if len(found) == count:
                    return found
    raise AssertionError("the stream ended")


def test_the_index_names_the_runs(client, service):
    text = client.get("/").text
    assert all(f'href="/page/{name}"' in text for name in service.runs)
    assert client.get("/page/nothing").status_code == 404


def test_events_follow_the_logs_and_resume(address, service, runs, monkeypatch):
    monkeypatch.setattr(pages, "POLL", 0.05)
    run = Run.open(runs / "writer")
    updates = [entry["update"] for entry in run.log.read()]
    first = read_events(address, "writer", len(updates))
    assert [number for number, _ in first] == updates
    assert first[0][1]["entry"] == run.log.read()[0]
    run.log.append({"update": 1000, "loss": 1.5}, "progress.jsonl")
    [(number, content)] = read_events(address, "writer", 1, **{"last-event-id": str(updates[-1])})
    assert (number, content) == (1000, {"log": "progress", "entry": {"update": 1000, "loss": 1.5}})


def test_a_served_page_computes_and_follows_the_training(service, runs, browser, monkeypatch):  # noqa: F811
    monkeypatch.setattr(pages, "POLL", 0.05)
    run = Run.open(runs / "filler")
    with running(service) as address:
        page, complaints = browser.new_page(), []
        page.on("console", lambda one: complaints.append(one.text) if one.type in ("error", "warning") else None)
        page.goto(f"{address}/page/filler#view=training")
        page.locator(READY).wait_for(state="attached")
        before = page.locator("section[aria-label=Curves] .hint").first.inner_text()
        for update in (2000, 2010):
            run.log.append({"update": update, "valid_loss": 1.25})
        page.get_by_text("2,010").first.wait_for()
        assert page.locator("section[aria-label=Curves] .hint").first.inner_text() != before
        page.get_by_role("tab", name="Why this word?").click()
        page.locator(".target .word").first.wait_for()
        page.close()
    assert not complaints
