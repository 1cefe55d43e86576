"""A server in this process with a translator, a language model, a mask filler and a classifier."""

import asyncio
import concurrent.futures
import contextlib
import socket
import threading
import time

import httpx
import pytest

from heedful.cli import main
from heedful.runs.run import Run
from heedful.serve.app import build_app
from heedful.serve.requests import Limits
from heedful.serve.server import LOCAL, Options, _Server, load_service, uvicorn_config
from tests.conftest import quiet, write_recipe

LIMITS = Limits(body_bytes=20_000, lines=20, characters=2_000, tokens=64, alternatives=4, seconds=20)


def completed(coroutine):
    """Return the result of a coroutine, run in a thread: tests with a browser leave an event loop in this one."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


@contextlib.contextmanager
def running(service, hosts=LOCAL, **options):
    """Serve an application on a free port; yield its address."""
    app, monitor = build_app(service, hosts, **options)
    listening = socket.create_server(("127.0.0.1", 0))
    server = _Server(uvicorn_config(app, 5), monitor, quiet)
    server.capture_signals = contextlib.nullcontext  # signals are for the main thread
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    listening.close()


@pytest.fixture(scope="session")
def runs(tmp_path_factory, trained):
    """The folders of the served runs: translator, writer, filler, classifier."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "translator").symlink_to(trained / "run")
    for task, name in (("generate", "writer"), ("fill", "filler"), ("classify", "classifier")):
        assert main(["train", str(write_recipe(folder, task)), "--run", str(folder / name)]) == 0
    return folder


@pytest.fixture(scope="session")
def service(runs):
    opened = [Run.open(runs / name) for name in ("translator/.", "writer", "filler", "classifier")]
    service = load_service(
        opened, [run.config.decode for run in opened], Options(slots=8, queue=64, limits=LIMITS), [("pt", "en")], quiet
    )
    yield service
    for one in service.runs.values():
        one.engine.stop()


@pytest.fixture(scope="session")
def address(service):
    with running(service) as address:
        yield address


@pytest.fixture
def openai(address):
    from openai import OpenAI

    with OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def client(address):
    with httpx.Client(base_url=address, timeout=30) as client:
        yield client


@pytest.fixture(scope="session")
def translator(service):
    """The name of the translator: that of its folder."""
    return next(iter(service.runs))
