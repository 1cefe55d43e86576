"""Served pages, and the events of a running training."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import httpx
import pytest

from heedful.core.special_tokens import END_ID
from heedful.runs.run import Run
from heedful.serve import pages
from heedful.serve.questions import MAX_QUESTIONS, PageModels
from tests.serve.conftest import running

pytestmark = pytest.mark.any_backend


def read_events(address, name, count, **headers):
    """Return the first events of a run as (last updates of both logs, content)."""
    found = []
    with httpx.stream("GET", f"{address}/api/runs/{name}/events", headers=headers, timeout=20) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        seen = None
        for line in answer.iter_lines():
            if line.startswith("id: "):
                seen = tuple(map(int, line[4:].split("-")))
            elif line.startswith("data: "):
                found.append((seen, json.loads(line[6:])))
                if len(found) == count:
                    return found
    raise AssertionError("the stream ended")


def test_the_index_names_the_runs(client, service):
    text = client.get("/").text
    assert all(f'href="/page/{name}"' in text for name in service.runs)
    assert "<style>" in text
    assert "script" not in text
    assert client.get("/page/nothing").status_code == 404


def test_events_follow_the_logs_and_resume(address, service, runs, monkeypatch):
    monkeypatch.setattr(pages, "POLL", 0.05)
    run = Run.open(runs / "writer")
    updates = [entry["update"] for entry in run.log.read()]
    first = read_events(address, "writer", len(updates))
    assert [seen for seen, _ in first] == [(update, 0) for update in updates]
    assert first[0][1]["entry"] == run.log.read()[0]
    run.log.append({"update": 1000, "loss": 1.5}, "progress.jsonl")
    progress = {"log": "progress", "entry": {"update": 1000, "loss": 1.5}}
    [(seen, content)] = read_events(address, "writer", 1, **{"last-event-id": f"{updates[-1]}-999"})
    assert (seen, content) == ((updates[-1], 1000), progress)
    # the entry of the log for an update whose progress was sent before the connection was lost
    missed = read_events(address, "writer", 1, **{"last-event-id": f"{updates[-2] if len(updates) > 1 else 0}-1000"})
    assert [content["entry"]["update"] for _, content in missed] == [updates[-1]]
    for unknown in ("7", "a-b", "1-2-3"):
        assert read_events(address, "writer", 1, **{"last-event-id": unknown}) == first[:1]


def test_a_model_that_loads_does_not_hold_up_other_questions(service):
    """Guards against a server that stood still while the model of a page was loaded."""
    models, served = PageModels(), service.runs["writer"]
    loaded = models.open(served)
    with models._loading, ThreadPoolExecutor(1) as pool:

        def answer():
            with models.turn():
                return models.open(served)

        assert pool.submit(answer).result(timeout=20) is loaded


def test_links_to_runs_with_odd_names_lead_to_their_pages():
    served = SimpleNamespace(name="50% a#2?<b>", task=SimpleNamespace(page=True))
    assert pages._link(served) == '<a href="/page/50%25%20a%232%3F%3Cb%3E">50% a#2?&lt;b&gt;</a>'
    assert pages._link(SimpleNamespace(name="a", task=SimpleNamespace(page=False))) == "a"


def ask(client, question, **fields):
    return client.post(f"/api/runs/run/{question}", json=fields)


def test_questions_are_answered_in_json(client):
    lines = [json.loads(line) for line in ask(client, "write", source=[5, 6, 7]).text.splitlines()]
    assert lines[-1] == {"end": True}
    target = [line["id"] for line in lines[:-1] if line["id"] != END_ID]
    looked = ask(client, "look", source=[5, 6, 7], target=target).json()
    written = [step for step in looked["steps"] if step["id"] != END_ID]
    assert [step["top"][0]["id"] for step in written] == target  # what greedy search writes is most likely
    [scores] = ask(client, "score", variants=[{"source": [5, 6, 7], "target": target}]).json()["scores"]
    assert scores == pytest.approx([step["logp"] for step in looked["steps"]], abs=1e-4)
    tree = [json.loads(line) for line in ask(client, "write", source=[5, 6, 7], width=3).text.splitlines()]
    assert {node["state"] for node in tree[0]["nodes"]} >= {"kept", "pruned"}
    assert len(tree[0]["done"]) == 3


@pytest.mark.parametrize(
    ("question", "fields", "status"),
    [
        ("look", {"source": [5]}, 422), ("look", {"source": [5], "target": [10**9]}, 422),
        ("look", {"source": [5], "target": [], "of": {}}, 422), ("look", {"source": "a", "target": []}, 422),
        ("score", {"variants": [1]}, 422), ("write", {"source": [5], "width": 10**6}, 422),
        ("write", {"source": [5], "tokens": -1}, 422), ("write", {"source": [5], "prefix": 5}, 422),
        ("write", {"source": [5], "prefix": {"5": 1}}, 422), ("look", {"source": [5], "target": [], "off": 7}, 422),
        ("nearest", {"text": "x" * 3000}, 413), ("guess", {}, 404),
    ],
)  # fmt: skip
def test_questions_that_make_no_sense_are_refused(client, question, fields, status):
    answer = ask(client, question, **fields)
    assert (answer.status_code, "Traceback" in answer.text) == (status, False), answer.text


def test_a_browser_gives_a_key_as_password(service):
    with running(service, keys=["secret"]) as address:
        refused = httpx.get(f"{address}/page/run")
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Basic realm="heedful"')
        assert httpx.get(f"{address}/page/run", auth=("any", "wrong")).status_code == 401
        assert httpx.get(f"{address}/", headers={"authorization": "Basic %%%"}).status_code == 401
        assert httpx.get(f"{address}/page/run", auth=("any", "secret"), timeout=60).status_code == 200


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("writer", {"source": [5] * 5000, "target": []}), ("writer", {"source": [5], "target": [6] * 5000}),
        ("filler", {"source": [5, 6], "target": [7]}), ("filler", {"source": [5] * 5000, "target": []}),
    ],
)  # fmt: skip
def test_targets_that_do_not_fit_are_refused(client, name, fields):
    answer = client.post(f"/api/runs/{name}/look", json=fields)
    assert answer.status_code == 422, answer.text


def test_clients_that_leave_free_their_place(address, client):
    """Twice as many as may wait leave in the middle of a stream; the next question is answered."""
    for _ in range(2 * MAX_QUESTIONS):
        with httpx.stream("POST", f"{address}/api/runs/writer/write", json={"source": [5, 6]}, timeout=60) as answer:
            next(answer.iter_lines())
    deadline = time.monotonic() + 20
    while (status := ask(client, "look", source=[5], target=[6]).status_code) != 200 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert status == 200
