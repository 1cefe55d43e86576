"""Start a server: load and warm up the runs, answer until a signal comes, then finish what was accepted."""

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

from heedful.config import DecodeConfig
from heedful.config.languages import languages_of
from heedful.core.errors import InputError
from heedful.core.processors import cores
from heedful.core.stop_signals import ending_signals
from heedful.runs.run import Run, by_name
from heedful.serve.app import build_app
from heedful.serve.engine import Engine
from heedful.serve.requests import Limits
from heedful.serve.service import Served, Service

GRACE = 0.5  # seconds between a signal and the end of listening
HEADER_SECONDS = 10.0  # time limit for all headers of a request to arrive
STALLED_SECONDS = 60.0  # after which a client that reads nothing of its answer is given up
BACKLOG = 2048  # connections that may wait to be accepted
LOCAL = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True)
class Options:
    """How to serve.

    Args:
        host, port: the address; port 0 takes a free one.
        engine: of translators: `heedful`, or `ctranslate2`, which needs their exports.
        queue: maximum number of texts of each run that wait or are being computed.
        slots: sentences decoded together by each thread.
        allowed_hosts, origins, keys: see `build_app`.
        drain_seconds: time for accepted requests after a signal.
        limits: of requests.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    engine: str = "heedful"
    queue: int = 1024
    slots: int = 48
    allowed_hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    drain_seconds: float = 30.0
    limits: Limits = field(default_factory=Limits)


def load_service(
    runs: Sequence[Run], decodes: Sequence[DecodeConfig], options: Options,
    languages: Sequence[tuple[str, str]] = (), report: Callable[[str], Any] = print,
) -> Service:  # fmt: skip
    """Load runs and compile their programs; return the `Service`.

    Raises:
        InputError: two runs have the same name, or one cannot be loaded or served.
    """
    served, pairs = [], iter(languages)
    for (name, run), decode in zip(by_name(runs).items(), decodes, strict=True):
        report(f"loading {name} (task {run.config.task}) ...")
        translates, own = run.task.translates, options.engine == "heedful"
        engine = Engine(
            _predictor(run, decode, options.engine), options.queue, options.slots, in_slots=translates and own,
            threads=cores() if translates and not own else 1,
        )  # fmt: skip
        engine.start()
        source, target = languages_of(run.config)
        own_pair = source or "source", target or "target"
        pair = next(pairs, own_pair) if run.task.translates else own_pair
        served.append(Served(name, run, engine, pair))
    return Service(served, options.limits)


def _predictor(run, decode, engine):
    if engine == "ctranslate2" and run.task.translates:
        from heedful.interop.export.ctranslate2_search import ctranslate2_translator

        translator = ctranslate2_translator(run, decode)
        search = translator.search_with()  # refuses what CTranslate2 lacks
        if not decode.sample:
            search.exported.translator(False, search.shortened)  # opens the model before the first request
        return translator
    return run.task.predictor([run], decode)


def serve(service: Service, options: Options, report: Callable[[str], Any] = print) -> int:
    """Answer requests until a signal comes; then answer those that were accepted.

    Return the exit code: 1 if some were not answered. Threads that still compute may be alive then.
    """
    listening = _listen(options.host, options.port)
    address = listening.getsockname()
    host = f"[{options.host}]" if ":" in options.host.strip("[]") and options.host[0] != "[" else options.host
    hosts = {*LOCAL, host.lower(), *(name.lower() for name in options.allowed_hosts)}
    app, monitor = build_app(service, sorted(hosts), options.keys, options.origins)
    server = _Server(uvicorn_config(app, options.drain_seconds), monitor, report)
    report(f"serving {', '.join(service.runs)} on http://{host}:{address[1]}")
    with _frozen_objects():
        asyncio.run(server.serve(sockets=[listening]))
    unanswered = f", {server.unanswered} were not" if server.unanswered else ""
    report(f"stopped: {monitor.answered - server.unanswered} requests were answered{unanswered}")
    deadline = 0.0 if server.force_exit else min(server.stop_at, time.monotonic()) + options.drain_seconds
    drained = [served.engine.drained(deadline - time.monotonic()) for served in service.runs.values()]
    for served in service.runs.values():
        served.engine.stop(max(0.0, deadline - time.monotonic()))
    return 1 if server.unanswered or not all(drained) else 0


@contextlib.contextmanager
def _frozen_objects() -> Iterator[None]:
    """Keep the garbage collector from traversing what was loaded before: some hundred thousand objects, most of Keras.

    A program that has frozen objects of its own, or has another server, is left as it is.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def uvicorn_config(app: Any, drain_seconds: float) -> uvicorn.Config:
    """Return how uvicorn serves an ASGI application."""
    return uvicorn.Config(
        app, http="h11", log_level="warning", access_log=False, lifespan="off", server_header=False, date_header=False,
        timeout_keep_alive=5, timeout_graceful_shutdown=int(drain_seconds), ws="none",
        h11_max_incomplete_event_size=65_536,
    )  # fmt: skip


class _Server(uvicorn.Server):
    """Stops on SIGINT, SIGTERM and SIGHUP as uvicorn does, but first lets clients know, and leaves the exit code to us.

    For `GRACE` seconds every answer closes its connection, so that no client sends a request on a connection that is
    about to be closed.
    """

    def __init__(self, config, monitor, report):
        super().__init__(config)
        self.monitor, self.report = monitor, report
        self.stop_at = float("inf")
        self.unanswered = 0  # requests that were given up when the server stopped
        self._stop_reported = False
        # By connection: its last request, the bytes that its client has not read yet, and since when both are the same.
        self._waiting: dict[Any, tuple[Any, int, float]] = {}

    async def on_tick(self, counter: int) -> bool:
        self._close_unfinished()
        if self.monitor.service.draining and not self._stop_reported:
            self._stop_reported = True  # here, since a signal may interrupt another print
            self.report("stopping: accepted requests are answered first; once more to stop at once")
        if time.monotonic() >= self.stop_at:
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        ended = asyncio.ensure_future(super().shutdown(sockets))
        ended.add_done_callback(self._count_unanswered)  # before those that are cancelled have ended
        while not ended.done() and not self.force_exit:
            await asyncio.wait({ended}, timeout=0.1)
        ended.cancel()  # from Python 3.12 on it waits for all connections, also after a second signal
        await asyncio.wait({ended})

    def _count_unanswered(self, ended):
        self.unanswered = len(self.server_state.tasks)

    def _close_unfinished(self):
        """Close connections whose next request, or whose client's reading of an answer, makes no progress.

        uvicorn waits for the headers of a request without end.
        """
        now, before = time.monotonic(), self._waiting
        self._waiting = {}
        for connection in list(self.server_state.connections):
            request = getattr(connection, "cycle", None)  # the last one whose headers are complete
            if not connection.transport:
                continue
            unread = connection.transport.get_write_buffer_size()
            if request and not request.response_complete and not unread:
                continue  # it is being answered
            *known, since = before.get(connection, (request, unread, now))
            since = since if known == [request, unread] else now
            self._waiting[connection] = request, unread, since
            if now - since > (STALLED_SECONDS if unread else HEADER_SECONDS):
                connection.transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        def stop(number, frame):
            if self.monitor.service.draining:  # a second signal: do not wait
                self.should_exit = self.force_exit = True
                return
            self.monitor.service.draining = True
            self.stop_at = time.monotonic() + GRACE

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, *ending_signals())}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sets TCP_NODELAY only then
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host.strip("[]"), port))
        listening.listen(BACKLOG)  # before the address is printed
    except OSError as error:
        listening.close()
        raise InputError(f"Cannot listen on {host}:{port}: {error.strerror}.") from error
    return listening


def read_keys(path: Path) -> tuple[str, ...]:
    """Return the API keys in a file, one a line; empty lines and lines with # do not count.

    Raises:
        InputError: the file is missing, or has no key.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"Cannot read the API keys in {path}: {error}.") from error
    stripped = [line.strip() for line in lines]
    keys = tuple(line for line in stripped if line and not line.startswith("#"))
    if not keys:
        raise InputError(f"{path} has no API key.")
    return keys


logging.getLogger("heedful.serve").addHandler(logging.StreamHandler())
