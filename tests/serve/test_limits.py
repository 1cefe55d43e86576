"""Bad requests, limits, strangers, clients that leave, and the end of a server."""

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import httpx
import pytest
from starlette.responses import StreamingResponse

from heedful.cli import main
from heedful.config.languages import languages_of
from heedful.config.protected import protection_of
from heedful.data.document_formats.document import Document
from heedful.data.sentences import Pieces, pieces_of_text
from heedful.decoding.slot_search import SOURCE_LENGTH
from heedful.inference.predictor import ScoredText
from heedful.serve.app import build_app
from heedful.serve.engine import Engine, Sentence
from heedful.serve.requests import Limits, Refused
from heedful.serve.server import LOCAL, _Server, read_keys, uvicorn_config
from heedful.serve.service import Served, Service, all_or_none
from heedful.serve.uploads import Uploads, translated_document
from tests.conftest import quiet
from tests.serve.conftest import completed, running

pytestmark = pytest.mark.any_backend


def until(condition):
    """Wait until a condition holds, at most 20 seconds."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


HEAD = "POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"
TRANSLATE = {"q": "o gato bebe", "target": "en"}


@pytest.mark.parametrize(("fields", "status", "message"), [
    ({"q": "o gato", "taget": "en"}, 422, "did you mean 'target'"),
    ({"q": "o gato"}, 422, "'target' is missing"),
    ({"q": 3, "target": "en"}, 422, "'q' must be a text or a list of texts"),
    ({"q": ["a", 3], "target": "en"}, 422, "'q' must be a text or a list of texts"),
    ({"q": "a", "target": "en", "alternatives": 99}, 422, "'alternatives' must be at most 4"),
    ({"q": "a", "target": "en", "alternatives": True}, 422, "must be a whole number"),
    ({"q": "a", "target": "xx"}, 400, "There is no translation from auto to xx; there is: pt-en"),
    ({"q": "a", "target": "en", "source": "de"}, 400, "from de to en"),
    ({"q": "a", "target": "en", "format": "xml"}, 422, "format must be text or html"),
    ({"q": "a\n" * 50, "target": "en"}, 413, "51 lines; a request may have 20"),
    ({"q": "a" * 3000, "target": "en"}, 413, "3,000 characters; 2,000 are allowed"),
    ({"q": "\ud800", "target": "en"}, 422, "half a character"),
    ([1], 422, "must be a JSON object"),
])  # fmt: skip
def test_a_bad_request_is_told_what_is_wrong(client, fields, status, message):
    headers = {"content-type": "application/json"}
    answer = client.post("/translate", content=json.dumps(fields), headers=headers)
    assert (answer.status_code, message in answer.json()["error"]) == (status, True), answer.text


def test_bodies_must_be_json_of_a_limited_size(client):
    headers = {"content-type": "application/json"}
    assert client.post("/translate", content=b"{", headers=headers).status_code == 400
    assert client.post("/translate", content=b'{"q": NaN}', headers=headers).status_code == 400
    assert client.post("/translate", content=b"[" * 15_000, headers=headers).status_code == 400
    assert client.post("/translate", content=b"x" * 30_000, headers=headers).status_code == 413

    def endless():
        for _ in range(100):
            yield b"x" * 1000

    assert client.post("/translate", content=endless(), headers=headers).status_code == 413
    assert client.post("/translate", content=b"{}", headers={"content-type": "text/plain"}).status_code == 415
    assert client.post("/v1/completions", data={"model": "writer"}).status_code == 415  # no forms there
    assert client.get("/translate").status_code == 405


@pytest.mark.parametrize("path", [
    "/../../etc/passwd", "/..%2f..%2fetc/passwd", "/v1/models/..%2f..%2fetc", "/v1/models/%00", "//etc/passwd",
    "/config.json",
])  # fmt: skip
def test_no_path_reaches_the_file_system(client, path):
    answer = client.get(path)
    assert answer.status_code == 404
    assert "root" not in answer.text


def test_other_hosts_and_origins_are_refused(client):
    assert client.get("/livez", headers={"host": "evil.example"}).status_code == 403
    assert client.get("/livez", headers={"host": "localhost:9999"}).status_code == 200
    assert client.post("/translate", json=TRANSLATE, headers={"origin": "https://evil.example"}).status_code == 403
    answer = client.get("/livez")
    assert "access-control-allow-origin" not in answer.headers


def test_allowed_origins_may_use_the_server(service):
    origin = "https://app.example"
    with running(service, origins=[origin]) as address:
        preflight = httpx.options(
            f"{address}/translate", headers={"origin": origin, "access-control-request-method": "POST"}
        )
        assert preflight.headers["access-control-allow-origin"] == origin
        assert "DELETE" in preflight.headers["access-control-allow-methods"]  # glossaries can be deleted
        asked = "authorization, content-type, x-stainless-os"  # as OpenAI's client for JavaScript
        preflight = httpx.options(
            f"{address}/v1/completions", headers={"origin": origin, "access-control-request-headers": asked}
        )
        assert preflight.headers["access-control-allow-headers"] == asked
        answer = httpx.post(f"{address}/translate", json=TRANSLATE, headers={"origin": origin})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, origin)


def test_keys(service, tmp_path):
    (tmp_path / "keys").write_text("# ours\nsecret-1\n  # theirs\n\nsecret-2\n", encoding="utf-8")
    with running(service, keys=read_keys(tmp_path / "keys")) as address:
        assert httpx.post(f"{address}/translate", json=TRANSLATE).status_code == 403
        for header in ("Bearer secret-2", "DeepL-Auth-Key secret-1"):
            answer = httpx.post(f"{address}/translate", json=TRANSLATE, headers={"authorization": header})
            assert answer.status_code == 200
        answer = httpx.get(f"{address}/v1/models", headers={"authorization": "Bearer secret"})
        assert (answer.status_code, answer.json()["error"]["message"]) == (401, "An API key is needed.")
        assert httpx.get(f"{address}/livez").status_code == 200
    with running(service, hosts=["*"], keys=["secret"]) as address:  # a path in the Host header opens nothing
        assert httpx.get(f"{address}/v1/models", headers={"host": "x/livez?"}).status_code == 401


def test_a_key_in_a_field_as_libretranslate_sends_it(service, tmp_path):
    """It announces that a key is needed; its clients send it in the body."""
    form = {"data": {"target": "en", "source": "pt"}, "files": {"file": ("a.html", b"<p>o gato</p>")}}
    with running(service, keys=["secret"]) as address, httpx.Client(base_url=address) as client:
        assert client.post("/translate", json=TRANSLATE | {"api_key": "secret"}).status_code == 200
        assert client.post("/translate", data=TRANSLATE | {"api_key": "secret"}).status_code == 200
        assert client.post("/detect", json={"q": "o gato", "api_key": "secret"}).status_code == 200
        spelt = {"content": b'{"q": "a", "target": "en", "api_key": "\\ud800"}'}
        assert client.post("/translate", headers={"content-type": "application/json"}, **spelt).status_code == 403
        for wrong in ({}, {"api_key": "secre"}, {"api_key": None}, {"api_key": ["secret"]}, {"api_key": "# theirs"}):
            assert client.post("/translate", json=TRANSLATE | wrong).status_code == 403
        assert client.post("/translate", json=TRANSLATE, headers={"authorization": "Bearer x"}).status_code == 401
        assert client.post("/translate_file", **form).status_code == 403
        form["data"]["api_key"] = "secret"
        answer = client.post("/translate_file", **form)
        assert answer.status_code == 200
        assert client.get(answer.json()["translatedFileUrl"]).status_code == 200  # the address has a key of its own
        assert client.post("/v2/translate", json={"text": ["a"], "target_lang": "EN"}).status_code == 403
        assert client.post("/v1/completions", json={"api_key": "secret"}).status_code == 401


def test_pages_of_the_host_that_was_asked_may_use_the_server(service):
    with running(service, hosts=["*"]) as address:
        for origin, status in (("http://box:8000", 200), ("http://box", 403), ("https://evil.example", 403)):
            headers = {"host": "box:8000", "origin": origin}
            assert httpx.post(f"{address}/translate", json=TRANSLATE, headers=headers).status_code == status


def test_a_warning_may_have_any_character(client):
    """Control characters of a text would end the connection without an answer."""
    answer = client.post("/translate", json=TRANSLATE | {"q": "o <b\rclass='x\x1b'> \"gato\\\" bebe"})
    assert answer.status_code == 200
    assert "299 heedful" in answer.headers["warning"]


class Slow:
    """A predictor that answers when it is let go."""

    def __init__(self):
        self.go, self.asked = threading.Event(), []

    max_length, glossary = 64, None

    def read(self, texts, numbers=None, warn=None):
        return [[5] for _ in texts]

    def pieces(self, text, glossary=None):
        return pieces_of_text(text, lambda line, name: Pieces([line], [], []))

    def translate_pieces(self, texts, warn=None, *_, **options):
        self.asked.append(list(texts))
        self.go.wait(20)
        return [[type("T", (), {"text": text, "score": 0.0})] for text in texts]


@pytest.fixture
def slow(service):
    """A service whose translator waits, with room for three texts."""
    real = next(iter(service.runs.values()))
    predictor = Slow()
    predictor.decode = real.predictor.decode
    engine = Engine(predictor, limit=3)
    engine.start()
    yield predictor, engine, Service([Served("slow", real.run, engine, ("pt", "en"))], Limits(seconds=20))
    predictor.go.set()
    engine.stop()


def test_a_full_queue_is_reported_and_empties(slow):
    predictor, engine, service = slow
    with running(service) as address, httpx.Client(base_url=address, timeout=30) as client:
        answers = []
        threads = [
            threading.Thread(
                target=lambda n=n: answers.append(client.post("/translate", json=TRANSLATE | {"q": f"{n}"}))
            )
            for n in range(3)
        ]
        for thread in threads:
            thread.start()
        while engine.pending < 3 and not answers:
            time.sleep(0.01)
        refused = client.post("/translate", json=TRANSLATE)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        predictor.go.set()
        for thread in threads:
            thread.join()
        assert [answer.status_code for answer in answers] == [200] * 3
        assert client.post("/translate", json=TRANSLATE).status_code == 200


def test_a_second_thread_answers_while_the_first_computes():
    predictor = Slow()
    engine = Engine(predictor, threads=2)
    engine.start()
    futures = [engine.translate("1")]
    until = time.monotonic() + 20
    while not predictor.asked and time.monotonic() < until:
        time.sleep(0.001)
    futures += [engine.translate(text) for text in ("2", "3")]
    while len(predictor.asked) < 2 and time.monotonic() < until:
        time.sleep(0.001)
    assert len(predictor.asked) >= 2
    predictor.go.set()
    assert [future.result(20).text for future in futures] == ["1", "2", "3"]
    engine.stop()


def test_a_request_with_more_texts_than_the_queue_is_accepted_if_it_finds_room(slow):
    """Otherwise a text of many sentences is refused for ever."""
    predictor, engine, service = slow
    [one] = service.runs.values()
    futures = service.translate(one, [Pieces([str(number)], [], []) for number in range(5)])
    assert engine.pending == 5
    with pytest.raises(Refused) as refused:
        service.translate(one, [Pieces(["6"], [], [])])
    assert refused.value.status == 429
    predictor.go.set()
    assert [future.result(5).text for future in futures] == [str(number) for number in range(5)]


def test_a_request_that_is_refused_in_part_is_refused_as_a_whole(slow):
    predictor, engine, service = slow
    [one] = service.runs.values()
    pieces = [Pieces([str(n)], [], []) for n in range(2)]
    futures = []

    def submit():
        with all_or_none() as accepted:
            futures.extend(service.translate(one, pieces))
            accepted += futures
            raise Refused(422, "The rest makes no sense.")

    with pytest.raises(Refused):
        submit()
    assert len(futures) == 2
    assert all(future.cancelled() for future in futures)
    predictor.go.set()
    assert engine.drained(5)
    assert sum(map(len, predictor.asked)) <= 1  # what had begun


def test_stopping_cancels_what_waits(slow):
    predictor, engine, service = slow
    [one] = service.runs.values()
    begun = engine.translate("begun")
    while not predictor.asked:
        time.sleep(0.01)
    waiting = service.candidates(one, [Pieces(["waits"], [], [])], n_best=2)
    threading.Timer(0.2, predictor.go.set).start()
    engine.stop()
    assert begun.result().text == "begun"
    assert all(future.cancelled() for future in waiting)


def test_the_further_texts_of_a_stream_are_accepted(slow):
    """Guards against streams that broke off in the middle when the queue had become full."""
    predictor, engine, service = slow
    [one] = service.runs.values()
    futures = [engine.translate(f"{number}") for number in range(3)]
    with pytest.raises(Refused):
        service.stream(one, "first", print)
    further = service.stream(one, "second", print, 2)
    predictor.go.set()
    assert further.result(5).text == "second"
    assert [future.result(5).text for future in futures] == ["0", "1", "2"]


def test_documents_leave_half_of_the_queue_to_others(slow, monkeypatch):
    """Guards against two documents that filled it: only the texts of a document were counted, not its sentences."""
    predictor, engine, service = slow
    [one] = service.runs.values()
    monkeypatch.setattr("heedful.serve.uploads.WINDOW", 2)
    monkeypatch.setattr("heedful.serve.uploads.RETRY_SECONDS", 0.01)
    engine.limit, pending = 8, []
    monkeypatch.setattr(predictor, "translate_pieces", lambda texts, warn: (
        pending.append(engine.pending) or [[ScoredText(text, 0.0)] for text in texts]
    ))  # fmt: skip
    predictor.pieces_of_texts = lambda part, glossary: [Pieces(list("abcdefg"), [" "] * 6, []) for _ in part.texts]
    document = Document(["a"] * 3, lambda results: " ".join(results).encode())

    async def three():
        return await asyncio.gather(*(translated_document(service, one, document) for _ in range(3)))

    assert completed(three()) == [b"a b c d e f g a b c d e f g a b c d e f g"] * 3
    assert max(pending) <= engine.limit // 2


def test_a_document_whose_client_has_left_is_forgotten(slow):
    predictor, engine, service = slow
    predictor.reader = SimpleNamespace(protection=protection_of(()))
    predictor.pieces_of_texts = lambda part, glossary: [Pieces(["a"], [], []) for _ in part.texts]
    with running(service) as address:
        form = {"data": {"target": "en", "source": "pt"}, "files": {"file": ("a.html", b"<p>o gato</p>")}}
        with pytest.raises(httpx.ReadTimeout), httpx.Client(base_url=address, timeout=0.5) as client:
            client.post("/translate_file", **form)
        end = time.monotonic() + 10
        while engine.pending and time.monotonic() < end:
            time.sleep(0.01)
        assert engine.pending == 0


def test_a_document_beyond_the_limit_waits_for_one_to_be_finished(slow, monkeypatch):
    """Guards against documents that were dropped while they were translated."""
    predictor, _, service = slow
    predictor.reader = SimpleNamespace(protection=protection_of(()))
    predictor.pieces_of_texts = lambda part, glossary: [Pieces(["a"], [], []) for _ in part.texts]
    monkeypatch.setattr(Uploads, "LIMIT", 1)
    form = {"data": {"target_lang": "en", "source_lang": "pt"}, "files": {"file": ("a.html", b"<p>o gato</p>")}}
    with running(service) as address, httpx.Client(base_url=address, timeout=20) as client:
        first = client.post("/v2/document", **form).json()
        assert client.post("/v2/document", **form).status_code == 429
        predictor.go.set()
        key = {"document_key": first["document_key"]}
        until(lambda: client.post(f"/v2/document/{first['document_id']}", json=key).json()["status"] == "done")
        assert client.post("/v2/document", **form).status_code == 200
        assert client.post(f"/v2/document/{first['document_id']}", json=key).status_code == 404


def test_a_few_sentences_get_the_search_with_few_slots():
    """Guards against the third of four sentences in the large search, which then runs beside the small one."""
    engine = Engine(Slow())
    searches = [SimpleNamespace(free=slots, slots=slots) for slots in (4, 48, 4)]
    for lengths, want in (([5] * 4, [4, 0, 0]), ([5] * 5, [0, 5, 0]), ([5, SOURCE_LENGTH, 5], [2, 0, 1])):
        engine._sentences.extend(Sentence([7] * length) for length in lengths)
        assert [len(admitted) for admitted in engine._take_sentences(searches)] == want
    engine._sentences.extend(Sentence([7] * SOURCE_LENGTH) for _ in range(6))
    assert [len(admitted) for admitted in engine._take_sentences(searches)] == [0, 0, 4]
    assert len(engine._sentences) == 2


def test_a_client_that_leaves_frees_its_place(slow):
    _predictor, engine, service = slow
    with running(service) as address:
        port = int(address.rsplit(":", 1)[1])
        body = json.dumps(TRANSLATE).encode()
        head = HEAD.format(len(body))
        waiting = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
        for connection in waiting:
            connection.sendall(head.encode() + body)
        while engine.pending < 3:
            time.sleep(0.01)
        for connection in waiting:
            connection.close()
        end = time.monotonic() + 10
        while engine.pending and time.monotonic() < end:
            time.sleep(0.01)
        assert engine.pending == 0


def test_time_is_limited(slow):
    _, _engine, service = slow
    service.limits = Limits(seconds=0.3)
    with running(service) as address:
        began = time.monotonic()
        answer = httpx.post(f"{address}/translate", json=TRANSLATE)
        assert answer.status_code == 504
        assert time.monotonic() - began < 5


def test_a_slow_body_is_not_awaited_forever(client, address, monkeypatch):
    monkeypatch.setattr("heedful.serve.requests.BODY_SECONDS", 0.3)
    port = int(address.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(HEAD.format(99).encode() + b"{")
        assert b" 408 " in connection.recv(1000)


@pytest.mark.parametrize("begun", [b"", b"POST /translate HTTP/1.1\r\nHost: x\r\n"])
def test_unfinished_headers_are_not_awaited_forever(client, address, monkeypatch, begun):
    """Guards against connections that block everyone: uvicorn waits for the headers without end."""
    monkeypatch.setattr("heedful.serve.server.HEADER_SECONDS", 0.3)
    port = int(address.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(begun)
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1000) == b""
    assert client.get("/livez").status_code == 200


LARGE = 8_800_000  # bytes


@contextlib.contextmanager
def large_download(client, address):
    """Ask for a document of some more than `LARGE` bytes; yield the connection after a second without reading."""
    page = b"<p>o gato</p><pre>" + b"0123456789 " * (LARGE // 11) + b"</pre>"
    answer = client.post("/translate_file", files={"file": ("a.html", page)}, data={"target": "en"})
    path = httpx.URL(answer.json()["translatedFileUrl"]).raw_path.decode()
    with socket.create_connection(("127.0.0.1", int(address.rsplit(":", 1)[1])), timeout=20) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        time.sleep(1)
        yield connection


def test_a_slow_download_arrives_whole(client, address, monkeypatch):
    """Guards against answers that were cut off, because the time for the next request counted from when it was sent."""
    monkeypatch.setattr("heedful.serve.server.HEADER_SECONDS", 0.2)
    with large_download(client, address) as connection:
        head, _, content = connection.recv(10_000).partition(b"\r\n\r\n")
        size = int(re.search(rb"content-length: (\d+)", head)[1])
        assert size > LARGE
        while len(content) < size and (more := connection.recv(1_000_000)):
            content += more
    assert content.endswith(b"</pre>")


def test_a_stream_that_nobody_reads_is_given_up(service, monkeypatch):
    """Guards against connections that stay: uvicorn waits without end until such an answer is read."""
    monkeypatch.setattr("heedful.serve.server.STALLED_SECONDS", 0.2)

    async def endless():
        while True:
            await asyncio.sleep(0)
            yield b"x" * 10_000

    async def app(scope, receive, send):
        await StreamingResponse(endless())(scope, receive, send)

    _, monitor = build_app(service, LOCAL)
    server = _Server(uvicorn_config(app, 1), monitor, quiet)
    server.capture_signals = contextlib.nullcontext  # signals are for the main thread
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        with socket.create_connection(listening.getsockname()) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            until(lambda: server.server_state.connections)
            until(lambda: not server.server_state.connections)
        server.should_exit = True
        thread.join()


@pytest.mark.parametrize("forced", [False, True])
def test_requests_that_are_given_up_when_the_server_stops_are_counted(slow, forced):
    """Guards the exit code: a request that is given up leaves no text in the queue; and a second signal, which waits
    for none (`forced`).
    """
    _, engine, service = slow
    app, monitor = build_app(service, LOCAL)
    server = _Server(uvicorn_config(app, 1000 if forced else 1), monitor, quiet)
    server.capture_signals = contextlib.nullcontext
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        body = json.dumps(TRANSLATE).encode()
        with socket.create_connection(listening.getsockname()) as connection:
            connection.sendall(HEAD.format(len(body)).encode() + body)
            until(lambda: engine.pending)
            server.should_exit = True
            server.force_exit = forced
            thread.join(60)
    assert not thread.is_alive()
    assert server.unanswered == 1


def test_a_client_that_reads_nothing_is_given_up(client, address, monkeypatch):
    monkeypatch.setattr("heedful.serve.server.STALLED_SECONDS", 0.2)
    with large_download(client, address) as connection, contextlib.suppress(ConnectionResetError):
        size = 0
        while more := connection.recv(1_000_000):
            size += len(more)
        assert size < LARGE


class PanicException(BaseException):
    """As the libraries in Rust raise it."""


def test_a_panic_is_an_answer_and_the_threads_live(client, service, monkeypatch):
    """Guards against engine threads that a text ends: every later request waited for its time-out."""
    writer = service.runs["writer"]

    class Inner:
        def __getattr__(self, name):
            return getattr(inner, name)

        def encode(self, text, **options):
            if "panic" in text:
                raise PanicException("retry-limit-in-match over")
            return inner.encode(text, **options)

    inner = writer.predictor.tokenizer._inner
    monkeypatch.setattr(writer.predictor.tokenizer, "_inner", Inner())
    request = {"model": "writer", "prompt": "panic", "max_tokens": 2}
    for _ in range(3):
        answer = client.post("/v1/completions", json=request)
        assert answer.status_code in (400, 422)
        assert "The tokenizer fails on a text: retry-limit-in-match over." in answer.text
    assert client.post("/v1/completions", json=request | {"prompt": "the"}).status_code == 200
    assert client.get("/readyz").status_code == 200


@pytest.mark.parametrize("error", [PanicException, KeyboardInterrupt])
def test_no_exception_ends_a_thread(client, service, monkeypatch, error):
    def fail(texts):
        raise error("in a library")

    engine = service.runs["writer"].engine
    with pytest.raises(RuntimeError, match="in a library"):
        engine.compute("failing", "a text", fail).result(20)
    assert engine.is_alive
    monkeypatch.setattr(type(engine), "is_alive", False)
    ready = client.get("/readyz")
    assert (ready.status_code, ready.text) == (503, "a thread of run has ended")


@pytest.mark.slow
def test_noise_is_refused_and_the_server_lives(client, service):
    """Random requests over all endpoints: no answer is a server error, and nothing stays in the queues."""
    draw = random.Random(1)
    paths = [
        "/translate",
        "/v2/translate",
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/embeddings",
        "/v1/models/x",
        "/languages",
        "/metrics",
    ]
    values = ["o gato", "", "\u0000", "😀" * 40, 1, -1, 1e308, True, None, [], ["a"] * 30, {}, [[]], "writer", "filler",
              "en", "a\nb", [{"role": "user", "content": "o gato"}],
              [{"role": "user", "content": [{"type": "text", "text": 3}]}]]  # fmt: skip
    names = ["q", "source", "target", "text", "target_lang", "model", "prompt", "messages", "input", "stream", "n",
             "max_tokens", "temperature", "top_p", "seed", "stop", "alternatives", "encoding_format", "format",
             "x"]  # fmt: skip
    statuses = set()
    for _ in range(200):
        fields = {name: draw.choice(values) for name in draw.sample(names, draw.randint(0, 5))}
        model = {"model": draw.choice(list(service.runs))} if draw.random() < 0.5 else {}
        content = json.dumps(fields | model)
        if draw.random() < 0.1:
            content = content[: draw.randint(0, len(content))]
        kind = draw.choice(["application/json"] * 6 + ["application/x-www-form-urlencoded", "text/plain", "\x7f"])
        answer = client.request(
            draw.choice(["POST"] * 9 + ["GET"]),
            draw.choice(paths),
            content=content.encode(),
            headers={"content-type": kind},
        )
        statuses.add(answer.status_code)
        assert answer.status_code < 500, (content, answer.text)
    assert {200, 400, 404, 405, 415, 422} <= statuses
    assert all(one.engine.pending == 0 for one in service.runs.values())


@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGHUP", marks=pytest.mark.slow)])
def test_a_signal_drains_the_server(name, runs):
    """Under load: every accepted request is answered, no new one is, and the exit code is 0.

    With SIGHUP, nobody reads the server's standard output: what it prints must not end it.
    """
    number = getattr(signal, name, None)
    if number is None or signal.getsignal(number) == signal.SIG_IGN:
        pytest.skip(f"no {name} here: this is Windows, or nohup")
    command = [
        sys.executable,
        "-m",
        "heedful",
        "serve",
        str(runs / "translator" / "."),
        "--port",
        "0",
        "--languages",
        "pt-en",
        "--slots",
        "4",
    ]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    port = int(re.search(r":(\d+)$", server.stdout.readline().strip())[1])
    if name == "SIGHUP":
        server.stdout.close()

    async def requests():
        answered = 0
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:

            async def ask():
                nonlocal answered
                while True:
                    try:
                        answer = await client.post("/translate", json=TRANSLATE)
                    except httpx.TransportError:  # the server listens no longer
                        return
                    assert answer.status_code == 200
                    answered += 1

            asking = [asyncio.create_task(ask()) for _ in range(16)]
            await asyncio.sleep(2)
            server.send_signal(number)
            await asyncio.gather(*asking)
        return answered

    answered = completed(requests())
    if name == "SIGTERM":
        said, _ = server.communicate(timeout=20)
        assert f"stopped: {answered} requests were answered" in said  # all that it accepted reached their clients
    assert answered > 16
    assert server.wait(timeout=20) == 0


def test_without_the_extra_the_command_says_what_to_install(runs, monkeypatch, capsys):
    for name in [name for name in sys.modules if name.startswith(("heedful.serve", "starlette", "uvicorn"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", str(runs / "writer")]) == 2
    assert "pip install 'heedful[serve]'" in capsys.readouterr().err


def test_two_runs_of_one_name_are_refused(runs, tmp_path, capsys):
    (tmp_path / "writer").symlink_to(runs / "writer")
    assert main(["serve", str(runs / "writer"), str(tmp_path / "writer")]) == 2
    assert "same folder name" in capsys.readouterr().err


def test_options_of_http_are_refused_for_agents(runs, capsys):
    for option in (["--port", "8001"], ["--engine", "ctranslate2"], ["--api-keys", "keys.txt"]):
        assert main(["serve", str(runs / "translator"), "--mcp", *option]) == 2
        assert f"{option[0]} is for HTTP" in capsys.readouterr().err


def test_a_port_in_use_is_reported(runs, capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert main(["serve", str(runs / "filler"), "--port", str(other.getsockname()[1])]) == 2
    assert "Cannot listen on 127.0.0.1" in capsys.readouterr().err


def test_languages_are_read_from_the_names_of_the_text(config):
    import dataclasses

    def named(corpus, train=(), name="x"):
        return languages_of(
            dataclasses.replace(config, name=name, data=dataclasses.replace(config.data, corpus=corpus, train=train))
        )

    assert named("phrasebook") == ("pt", "en")
    assert named("ted_hrlr:pt-en") == ("pt", "en")
    assert named("files", ("multi30k/train.de.gz", "multi30k/train.en.gz")) == ("de", "en")
    assert named("files", ("a.tsv",), "tutorial-pt-en") == ("pt", "en")
    assert named("files", ("a.tsv",)) == ("", "")
    assert named("files", ("train.src", "train.tgt")) == named("files", ("a.tsv",), "ready-to-go") == ("", "")
