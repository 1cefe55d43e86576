"""heedful's own interface: what a served page asks about a run (`heedful.inspection.page.model.PageModel`).

`POST /api/runs/NAME/QUESTION` with JSON: `look`, `score`, `write` (a stream of lines, each of them JSON) and `nearest`.
"""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from heedful.core.errors import InputError
from heedful.inspection.page.model import PageModel
from heedful.runs.run import Run
from heedful.serve.requests import ANY, RETRY_AFTER, TEXT, WHOLE, Field, Refused, read_fields
from heedful.serve.service import Served, Service

MAX_QUESTIONS = 16  # that are answered or wait at a time
READING = {"source": Field(ANY, ...), "off": Field(ANY), "checkpoint": Field(WHOLE)}  # of look and write
QUESTIONS = {
    "look": READING | {"target": Field(ANY, ...)},
    "score": {"variants": Field(ANY, ...), "checkpoint": Field(WHOLE)},
    "write": READING | {"prefix": Field(ANY), "width": Field(WHOLE, 1), "tokens": Field(WHOLE, 0, 0)},
    "nearest": {"text": Field(TEXT, ...)},
}  # fmt: skip


class PageModels:
    """The models of the served pages. Each is loaded for the first page of its run, and again after a training.

    Threads share it.
    """

    def __init__(self) -> None:
        self._models: dict[str, tuple[Any, PageModel]] = {}
        self._loading = threading.Lock()  # held for seconds, while a model is loaded
        self._counting, self._questions = threading.Lock(), 0

    def open(self, served: Served) -> PageModel:
        """Return the model of a run, with its current weights; `InputError` if a page can show nothing of the run."""
        state = served.run.weights_path().stat()
        version = state.st_mtime_ns, state.st_size
        if model := self._loaded(served, version):
            return model
        with self._loading:
            if model := self._loaded(served, version):  # by another thread
                return model
            model = PageModel(Run.open(served.run.path).with_text(served.run.named_text))
            self._models[served.name] = version, model
            return model

    def _loaded(self, served, version):
        """Return the model of a run if it is loaded, in this version."""
        loaded_version, model = self._models.get(served.name, (None, None))
        return model if loaded_version == version else None

    def describe(self, served: Served) -> dict[str, Any]:
        """Return the description of a run for a page that asks this server."""
        api = f"/api/runs/{quote(served.name)}"
        description = self.open(served).about | {"name": served.name, "api": api, "events": f"{api}/events"}
        if served.task.translates and (glossary := served.predictor.glossary):
            description["glossary"] = [*glossary.terms.items()]
        return description

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Hold a place for a question in this context; `Refused` (429) if all are taken."""
        with self._counting:
            if self._questions >= MAX_QUESTIONS:
                raise Refused(429, "Too many questions are waiting.", Retry_After=RETRY_AFTER)
            self._questions += 1
        try:
            yield
        finally:
            with self._counting:
                self._questions -= 1


def routes(service: Service, models: PageModels) -> list[Route]:
    """Return the route of the questions."""

    async def question(request: Request) -> Response:
        served, asked = service.find(request.path_params["name"]), request.path_params["question"]
        if asked not in QUESTIONS:
            raise Refused(404, f"There is no question {asked!r}; choose one of {', '.join(QUESTIONS)}.")
        given = await read_fields(request, QUESTIONS[asked], service.limits)
        if len(given.get("text", "")) > service.limits.characters:
            raise Refused(413, f"The text may have at most {service.limits.characters:,} characters.")
        deadline = time.monotonic() + service.limits.seconds
        events = _answer(models, served, asked, given, deadline)
        if asked != "write":
            return JSONResponse(await run_in_threadpool(next, events))
        first = await run_in_threadpool(next, events, None)  # before the stream begins: an error has a status then
        return StreamingResponse(_as_lines(first, events), media_type="application/x-ndjson")

    return [Route("/api/runs/{name}/{question}", question, methods=["POST"])]


def _answer(models, served, asked, given, deadline) -> Iterator[Any]:
    """Yield the answer to a question; that of `write` piece by piece."""
    with models.turn():
        model = models.open(served)
        if asked == "write":
            for event in model.write(**given):
                _refuse_after(deadline)
                yield event
        elif asked == "score":
            scores = {}
            for number, scored in model.score(**given):
                _refuse_after(deadline)
                scores[number] = scored
            yield {"scores": [scores[number] for number in range(len(scores))]}
        else:
            yield getattr(model, asked)(**given)


def _refuse_after(deadline):
    if time.monotonic() > deadline:
        raise Refused(504, "The answer took too long.", Retry_After=RETRY_AFTER)


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
