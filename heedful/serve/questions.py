"""heedful's own interface: what a served page asks about a run (`heedful.inspection.page.model.PageModel`).

`POST /api/runs/NAME/QUESTION` with JSON: `look`, `score`, `write` (a stream of lines, each of them JSON) and `nearest`.
"""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from heedful.core.errors import InputError
from heedful.inspection.page.model import PageModel
from heedful.runs.run import Run
from heedful.serve.requests import ANY, RETRY_AFTER, TEXT, WHOLE, Field, Refused, read_fields
from heedful.serve.service import Served, Service

WAITING = 16  # questions that are answered or wait at a time
VARIANT = {"source": Field(ANY, ...), "off": Field(ANY), "checkpoint": Field(WHOLE)}
QUESTIONS = {
    "look": VARIANT | {"target": Field(ANY, ...)},
    "score": {"variants": Field(ANY, ...), "checkpoint": Field(WHOLE)},
    "write": VARIANT | {"prefix": Field(ANY), "width": Field(WHOLE, 1), "tokens": Field(WHOLE, 0, 0)},
    "nearest": {"text": Field(TEXT, ...)},
}  # fmt: skip


class PageModels:
    """The models of the served pages. Each is loaded for the first page of its run, and again after a training.

    Threads share it.
    """

    def __init__(self) -> None:
        self._models: dict[str, tuple[Any, PageModel]] = {}
        self._lock, self._waiting = threading.Lock(), 0

    def open(self, served: Served) -> PageModel:
        """Return the model of a run, with its current weights; `InputError` if a page can show nothing of the run."""
        state = served.run.weights_path().stat()
        version = state.st_mtime_ns, state.st_size
        with self._lock:
            if served.name not in self._models or self._models[served.name][0] != version:
                run = Run.open(served.run.path).with_text(served.run.named_text)
                self._models[served.name] = version, PageModel(run)
            return self._models[served.name][1]

    def describe(self, served: Served) -> dict[str, Any]:
        """Return the description of a run for a page that asks this server."""
        api = f"/api/runs/{served.name}"
        description = self.open(served).about | {"name": served.name, "api": api, "events": f"{api}/events"}
        if served.task.translates and (glossary := served.predictor.glossary):
            description["glossary"] = [*glossary.terms.items()]
        return description

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Answer a question; `Refused` (429) if too many wait."""
        with self._lock:
            if self._waiting >= WAITING:
                raise Refused(429, "Too many questions are waiting.", Retry_After=RETRY_AFTER)
            self._waiting += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting -= 1


def routes(service: Service, models: PageModels) -> list[Route]:
    """Return the route of the questions."""

    async def question(request: Request) -> Response:
        one, asked = service.find(request.path_params["name"]), request.path_params["question"]
        if asked not in QUESTIONS:
            raise Refused(404, f"There is no question {asked!r}; known are {', '.join(QUESTIONS)}.")
        given = await read_fields(request, QUESTIONS[asked], service.limits)
        if len(given.get("text", "")) > service.limits.characters:
            raise Refused(413, f"The text may have {service.limits.characters:,} characters.")
        until = time.monotonic() + service.limits.seconds
        lines = _answer(models, one, asked, given, until)
        if asked != "write":
            return JSONResponse(await run_in_threadpool(next, lines))
        first = await run_in_threadpool(next, lines, None)  # which fails if the question makes no sense
        return StreamingResponse(_as_lines(first, lines), media_type="application/x-ndjson")

    return [Route("/api/runs/{name}/{question}", question, methods=["POST"])]


def _answer(models, served, asked, given, until) -> Iterator[Any]:
    """Yield the answer to a question; that of `write` piece by piece."""
    with models.turn():
        model = models.open(served)
        if asked == "write":
            for event in model.write(**given):
                _require_time(until)
                yield event
        elif asked == "score":
            scores = {}
            for number, scored in model.score(**given):
                _require_time(until)
                scores[number] = scored
            yield {"scores": [scores[number] for number in range(len(scores))]}
        else:
            yield getattr(model, asked)(**given)


def _require_time(until):
    if time.monotonic() > until:
        raise Refused(504, "There was no time for a whole answer.", Retry_After=RETRY_AFTER)


def _as_lines(first, rest) -> Iterator[str]:
    """Yield each event as a line of JSON, at last `end` or `error`: a stream has no status for what fails later."""
    try:
        if first is not None:
            yield json.dumps(first) + "\n"
            for event in rest:
                yield json.dumps(event) + "\n"
        yield json.dumps({"end": True}) + "\n"
    except (Refused, InputError) as error:
        yield json.dumps({"error": str(error)}) + "\n"
    finally:
        rest.close()  # frees its place if the client has left
