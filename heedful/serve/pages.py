"""The page of each served run, which asks the server about it, and its training as a stream of events."""

import asyncio
import contextlib
import html
import json
from collections.abc import AsyncIterator
from typing import Any

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

POLL, HEARTBEAT = 1.0, 15.0  # seconds between two looks at the logs; between two signs of life
LOGS = {"log": LOG, "progress": PROGRESS}  # the names in a page, and the files


def routes(service: Service) -> list[Route]:
    """Return the routes of the index, the pages, their questions and the events."""
    models = PageModels()

    async def index(request: Request) -> Response:
        names = [(html.escape(one.name, quote=True), one.task.name) for one in service.runs.values()]
        items = "".join(f'<li><a href="/page/{name}">{name}</a> · {task}</li>' for name, task in names)
        return HTMLResponse(build_index("heedful: runs", f"<h1>Runs</h1>\n<ul class=card>{items}</ul>\n"))

    async def page(request: Request) -> Response:
        one = service.find(request.path_params["name"])
        others = [other for other in service.runs.values() if other is not one and other.task.page]
        try:
            descriptions = [await run_in_threadpool(models.describe, one)]
        except InputError as error:
            raise Refused(404, str(error)) from error
        for other in others:
            with contextlib.suppress(InputError):  # nothing to compare with, for now
                descriptions.append(await run_in_threadpool(models.describe, other))
        return HTMLResponse(build_document(f"{one.name} · heedful", descriptions, [], served=True))

    async def events(request: Request) -> Response:
        one, last = service.find(request.path_params["name"]), request.headers.get("last-event-id", "")
        stream = _events(service, one.run, int(last) if last.isdecimal() and len(last) < 12 else 0)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"cache-control": "no-store"})

    return [
        Route("/", index), Route("/page/{name}", page), Route("/api/runs/{name}/events", events),
        *questions.routes(service, models),
    ]  # fmt: skip


async def _events(service: Service, run: Run, last: int) -> AsyncIterator[str]:
    """Yield each entry of the logs after update `last`, those that are there and those that come.

    The id of an event is its update: a browser that reconnects asks for what came after the last one.
    """
    tails, silent = {log: LogTail(run.path, name) for log, name in LOGS.items()}, 0.0
    seen = dict.fromkeys(LOGS, last)
    while not service.draining:
        for log, tail in tails.items():
            for entry in await run_in_threadpool(_new_entries, tail):
                if entry["update"] > seen[log]:  # a resumed training repeats some
                    seen[log], silent = entry["update"], 0.0
                    yield _event(entry["update"], {"log": log, "entry": entry})
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


def _event(number: int, content: Any) -> str:
    return f"id: {number}\ndata: {json.dumps(content, ensure_ascii=False)}\n\n"
