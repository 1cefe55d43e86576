"""What a server reports of itself: /livez, /readyz, /health and /metrics. No label names a client or a text."""

import functools
import time
from collections.abc import Sequence

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedful.serve.service import Service

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)  # seconds


class Monitor:
    """Counts requests by path and status, measures their time by path, and reports the state of the server."""

    def __init__(self, service: Service):
        self.service, self.answered = service, 0
        self.registry = CollectorRegistry()
        self.requests = Counter("heedful_requests", "Answered requests", ["path", "status"], registry=self.registry)
        self.seconds = Histogram(
            "heedful_request_seconds", "Time until the answer begins", ["path"], buckets=BUCKETS,
            registry=self.registry,
        )  # fmt: skip
        pending = Gauge("heedful_pending_texts", "Texts that wait or are computed", ["run"], registry=self.registry)
        for served in service.runs.values():
            pending.labels(served.name).set_function(functools.partial(getattr, served.engine, "pending"))

    def routes(self) -> list[Route]:
        """Return the routes."""
        service = self.service

        async def live(request: Request) -> Response:
            return PlainTextResponse("ok")

        async def ready(request: Request) -> Response:
            dead = [served.name for served in service.runs.values() if not served.engine.is_alive]
            problem = "draining" if service.draining else f"a thread of {dead[0]} has ended" if dead else ""
            return PlainTextResponse(problem or "ok", 503 if problem else 200)

        async def health(request: Request) -> Response:  # in the form of LibreTranslate
            return JSONResponse({"status": "ok"})

        async def metrics(request: Request) -> Response:
            return Response(generate_latest(self.registry), media_type=CONTENT_TYPE_LATEST)

        return [
            Route("/livez", live), Route("/readyz", ready), Route("/health", health), Route("/metrics", metrics),
        ]  # fmt: skip

    def middleware(self, app: ASGIApp, routes: Sequence[Route]) -> ASGIApp:
        """Return `app`, with each request counted by the path of its route, such as /page/{name}, or as `other`.

        While the server drains, each response closes its connection.
        """
        paths = {route.path for route in routes}

        def path_of(scope: Scope) -> str:
            if scope["path"] in paths:
                return scope["path"]
            matches = [(route.matches(scope)[0], route.path) for route in routes]
            fitting = (path for kind in (Match.FULL, Match.PARTIAL) for match, path in matches if match is kind)
            return next(fitting, "other")

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            began, status, seconds, path = time.monotonic(), 500, None, path_of(scope)

            async def sent(message: Message) -> None:
                nonlocal status, seconds
                if message["type"] == "http.response.start":
                    status, seconds = message["status"], time.monotonic() - began
                    if self.service.draining:
                        message["headers"] = [*message.get("headers", []), (b"connection", b"close")]
                await send(message)

            try:
                await app(scope, receive, sent)
            finally:
                self.answered += 1
                self.requests.labels(path, str(status)).inc()
                self.seconds.labels(path).observe(time.monotonic() - began if seconds is None else seconds)

        return counted
