"""A server whose translators are exports to CTranslate2."""

import shutil

import httpx
import pytest

from heedful import load
from heedful.cli import main
from heedful.runs.run import Run
from heedful.serve.server import Options, load_service
from tests.conftest import PAIRS, quiet
from tests.serve.conftest import LIMITS, running

pytestmark = pytest.mark.any_backend

pytest.importorskip("ctranslate2")

LINES = [source for source, _ in PAIRS]


@pytest.fixture(scope="module")
def exported(runs, tmp_path_factory):
    """A served translator with an export, beside a language model; yields a client and the translator's folder."""
    translator = tmp_path_factory.mktemp("exported") / "translator"
    shutil.copytree(runs / "translator", translator)
    assert main(["export", str(translator), "--to", "ctranslate2"]) == 0
    opened = [Run.open(translator), Run.open(runs / "writer")]
    options = Options(engine="ctranslate2", queue=64, limits=LIMITS)
    service = load_service(opened, [run.config.decode for run in opened], options, [("pt", "en")], quiet)
    with running(service) as address, httpx.Client(base_url=address, timeout=30) as client:
        yield client, translator
    for served in service.runs.values():
        served.engine.stop()


@pytest.mark.slow
def test_an_export_translates_as_its_run(exported):
    client, translator = exported
    lines = [*LINES[:8], "", " ".join(LINES[:4])]
    want = load(translator).translate(lines, quiet)
    for line, translation in zip(lines, want, strict=True):  # one by one: an export has one length limit for a batch
        assert client.post("/translate", json={"q": line, "target": "en"}).json()["translatedText"] == translation
    several = client.post("/translate", json={"q": lines, "target": "en"}).json()["translatedText"]
    assert all(text.startswith(translation) for text, translation in zip(several, want, strict=True))


def test_an_export_gives_alternatives_and_streams(exported):
    client, translator = exported
    reply = client.post("/translate", json={"q": LINES[0], "target": "en", "alternatives": 2}).json()
    assert len({reply["translatedText"], *reply["alternatives"]}) == 3
    messages = [{"role": "user", "content": LINES[0]}]
    request = {"model": "translator", "messages": messages, "stream": True}
    events = client.post("/v1/chat/completions", json=request).text.split("\n\n")
    [want] = load(translator).translate(LINES[:1])
    assert want in "".join(events)
    assert "data: [DONE]" in events


def test_models_that_do_not_translate_keep_our_own_engine(exported):
    client, _ = exported
    reply = client.post("/v1/completions", json={"model": "writer", "prompt": "the cat", "max_tokens": 4})
    assert reply.status_code == 200
    assert reply.json()["choices"][0]["text"]
