"""Served pages, and the events of a running training."""

import json

import httpx
import pytest

from heedful.run import Run
from heedful.serve import pages

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
