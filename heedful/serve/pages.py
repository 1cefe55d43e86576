"""The page of each served run, which asks the server about it, and its training as a stream of events."""

import asyncio
import contextlib
import html
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from heedful.core.errors import InputError
from heedful.inspection.page.document import build_document, build_index
from heedful.runs.run import Run
from heedful.runs.training_log import LOG, PROGRESS, LogTail
from heedful.serve import questions
from heedful.serve.questions import PageModels
from heedful.serve.requests import Refused
from heedful.serve.service import Service

POLL, HEARTBEAT = 1.0, 15.0  # seconds between reads of the logs; without an event, before a comment is sent
MAX_DIGITS = 11  # of an update in the id of an event
LOGS = {"log": LOG, "progress": PROGRESS}  # the names in a page, and the files


def routes(service: Service) -> list[Route]:
    """Return the routes of the index, the pages, their questions and the events."""
    models = PageModels()

    async def index(request: Request) -> Response:
        items = "".join(f"<li>{_link(served)} · {served.task.name}</li>" for served in service.runs.values())
        return HTMLResponse(build_index("heedful: runs", f"<h1>Runs</h1>\n<ul class=card>{items}</ul>\n"))

    async def page(request: Request) -> Response:
        served = service.find(request.path_params["name"])
        others = [other for other in service.runs.values() if other is not served and other.task.page]
        try:
            descriptions = [await run_in_threadpool(models.describe, served)]
        except InputError as error:
            raise Refused(404, str(error)) from error
        for other in others:
            with contextlib.suppress(InputError):  # a run without weights yet cannot be compared
                descriptions.append(await run_in_threadpool(models.describe, other))
        return HTMLResponse(build_document(f"{served.name} · heedful", descriptions, [], served=True))

    async def events(request: Request) -> Response:
        served, last = service.find(request.path_params["name"]), request.headers.get("last-event-id", "")
        stream = _events(service, served.run, _seen(last))
        return StreamingResponse(stream, media_type="text/event-stream", headers={"cache-control": "no-store"})

    return [
        Route("/", index), Route("/page/{name}", page), Route("/api/runs/{name}/events", events),
        *questions.routes(service, models),
    ]  # fmt: skip


def _link(served):
    """Return the name of a run as HTML, with a link to its page if it has one."""
    name = html.escape(served.name)
    return f'<a href="/page/{quote(served.name)}">{name}</a>' if served.task.page else name


def _seen(event_id):
    """Return the last update of each log that a browser has received; 0 if its event id is none of ours."""
    numbers = event_id.split("-")
    known = len(numbers) == len(LOGS) and all(each.isdecimal() and len(each) <= MAX_DIGITS for each in numbers)
    return dict(zip(LOGS, map(int, numbers), strict=True)) if known else dict.fromkeys(LOGS, 0)


async def _events(service: Service, run: Run, seen: dict[str, int]) -> AsyncIterator[str]:
    """Yield the entries of the logs after the updates in `seen`: those that are there, and each new one.

    The id of an event holds the last update sent from each log. A browser that reconnects returns it, and receives what
    came after.
    """
    tails, silent = {log: LogTail(run.path, name) for log, name in LOGS.items()}, 0.0
    while not service.draining:
        for log, tail in tails.items():
            for entry in await run_in_threadpool(_new_entries, tail):
                if entry["update"] > seen[log]:  # a resumed training repeats some
                    seen[log], silent = entry["update"], 0.0
                    yield _event(seen, {"log": log, "entry": entry})
        if silent >= HEARTBEAT:
            silent = 0.0
            yield ": still here\n\n"
        await asyncio.sleep(POLL)
        silent += POLL


def _new_entries(tail: LogTail) -> list[dict[str, Any]]:
    """Return what was added to a log; nothing of one that is damaged."""
    try:
        return tail.read()
    except InputError:
        return []


def _event(seen: dict[str, int], content: Any) -> str:
    return f"id: {'-'.join(map(str, seen.values()))}\ndata: {json.dumps(content, ensure_ascii=False)}\n\n"
