"""Texts by name: downloaded from a local server that behaves well and badly, prepared, and trained on."""

import contextlib
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from heedful.config import Config, DataConfig
from heedful.config import named_texts as registry
from heedful.config.recipes import find_recipe
from heedful.config.settings import of_recipe
from heedful.core.errors import InputError
from heedful.core.plugins import find_task
from heedful.data.corpus import resolve
from heedful.data.text_files import read_lines
from heedful.data.texts import preparation
from heedful.data.texts.download import download
from heedful.tasks.translation_data import corpora
from tests.conftest import PAIRS

pytestmark = pytest.mark.any_backend

NAME = "ted_hrlr:pt-en"


class Handler(BaseHTTPRequestHandler):
    """Serves `server.files`; sends at most `server.limit` bytes of a body, then closes the connection."""

    def do_GET(self):
        self.server.requests.append((self.path, self.headers.get("Range")))
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        first = 0
        if (wanted := self.headers.get("Range")) and self.server.ranges:
            first = int(wanted.removeprefix("bytes=").rstrip("-"))
            if first >= len(content):
                self.send_error(416)
                return
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(len(content) - first))
        self.end_headers()
        body = content[first:]
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body if self.server.limit is None else body[: self.server.limit])
        self.close_connection = True

    def log_message(self, *arguments):
        """Say nothing."""


@pytest.fixture
def server(monkeypatch, tmp_path):
    """A mirror without files."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.files, server.limit, server.ranges, server.requests = {}, None, True, []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("HEEDFUL_MIRROR", f"http://127.0.0.1:{server.server_port}/")
        monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path / "cache"))
        yield server
        server.shutdown()


def packed(files):
    """Return a .tar.gz with files by name."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def ted(server, monkeypatch):
    """Serve an archive of the form of the TED talks, with little text; return a function that changes its files."""
    files = {}
    for part in ("train", "dev", "test"):
        for side, language in enumerate(("pt", "en")):
            lines = "".join(f"{pair[side]}\n" for pair in PAIRS)
            files[f"datasets/pt_to_en/{language}.{part}"] = lines.encode()
    files["datasets/az_to_en/az.train"] = b"other\n"

    def serve(right=True, **more):
        content = packed(files | {name.replace("__", "/"): text for name, text in more.items()})
        server.files["/www.phontron.com/data/qi18naacl-dataset.tar.gz"] = content
        entry = registry.find(NAME)
        expected = hashlib.sha256(content if right else b"").hexdigest()
        monkeypatch.setitem(registry.registry(), NAME, type(entry)(**vars(entry) | {"sha256": expected}))
        return content

    serve()
    return serve


def test_a_text_is_downloaded_prepared_and_trained_on(ted, cli, server):
    got = cli("data", "get", NAME)
    assert got.returncode == 0, got.stderr
    assert b"licence: CC BY-NC-ND 4.0" in got.stderr
    folder = registry.find(NAME).folder
    assert got.stdout.decode().strip() == str(folder)
    description = json.loads((folder / "text.json").read_text())
    assert description["licence"].startswith("CC BY-NC-ND 4.0")
    assert list(read_lines(resolve(f"{NAME}/train.pt"))) == [source for source, _ in PAIRS]
    assert sorted(path.name for path in folder.iterdir()) == [
        "test.en", "test.pt", "text.json", "train.en", "train.pt", "valid.en", "valid.pt",
    ]  # fmt: skip
    asked = len(server.requests)
    assert cli("data", "get", NAME).returncode == 0
    assert len(server.requests) == asked
    sizes = ("--model.num_layers", 1, "--model.d_model", 16, "--model.num_heads", 2, "--model.d_ff", 16)
    few = ("--train.updates", 2, "--train.validate_every", 2, "--tokenizer.vocab_size", 80, "--train.check", "false")
    trained = cli("train", "tutorial-pt-en", "--run", "run", *sizes, *few)
    assert trained.returncode == 0, trained.stderr
    scores = json.loads((folder.parents[2] / "run" / "scores.json").read_text())
    assert scores[-1]["licence"].startswith("CC BY-NC-ND 4.0")


def test_lists_and_facts(cli, server):
    assert NAME.encode() in cli("data", "list").stdout
    facts = cli("data", "info", NAME).stdout
    assert b"216a86c3df4d4f522856fe9b920ff5be6b394d769cc88974ae8f9f5546953bbc" in facts
    assert b"not downloaded" in facts


def test_a_text_that_is_not_there_names_the_command(server):
    with pytest.raises(InputError, match=f"heedful data get {NAME} downloads it"):
        corpora(Config(data=DataConfig(corpus=NAME)))


def test_a_file_that_no_text_of_that_name_has_is_not_looked_up_there():
    assert registry.located(Path("trec/train.txt")) is None  # of the recipe, in HEEDFUL_DATA
    assert registry.located(Path("trec/TREC_10.label")) == registry.find("trec").folder / "TREC_10.label"


def test_a_text_in_the_other_direction_than_the_recipe_is_refused():
    recipe = find_recipe("multi30k-en-de")
    with pytest.raises(InputError, match="The recipe multi30k-en-de is for en to de, but multi30k:de-en is de to en"):
        of_recipe(recipe, ["--data.corpus", "multi30k:de-en"])
    assert of_recipe(recipe, ["--data.corpus", "multi30k:en-de"]).data.corpus == "multi30k:en-de"


@pytest.mark.parametrize("command", ["get", "info"])
def test_an_unknown_name_gives_the_nearest(cli, command):
    result = cli("data", command, "ted_hlrr:pt-en")
    assert result.returncode == 2
    assert b"did you mean 'ted_hrlr:pt-en'?" in result.stderr
    with pytest.raises(InputError, match="There is no text named 'phrasebok'"):
        DataConfig(corpus="phrasebok")


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_download_continues(ted, server, ranges):
    content, server.limit, server.ranges = ted(), 100, ranges
    with pytest.raises(InputError, match=r"cannot be reached: .*the same command continues"):
        preparation.get(NAME, report=lambda line: None)
    assert not registry.find(NAME).is_prepared
    server.limit, seen = None, []
    preparation.get(NAME, report=lambda line: None, advance=lambda done, size: seen.append((done, size)))
    assert registry.find(NAME).is_prepared
    assert server.requests[-1][1] == "bytes=100-"
    assert seen[-1] == (len(content), len(content))


def test_a_wrong_checksum_is_reported_and_the_file_kept_aside(ted, server):
    content = ted(right=False)
    with pytest.raises(InputError) as caught:
        preparation.get(NAME, report=lambda line: None)
    assert hashlib.sha256(content).hexdigest() in str(caught.value)
    assert hashlib.sha256(b"").hexdigest() in str(caught.value)
    downloads = registry.find(NAME).folder.parent / "downloads" / "ted_hrlr-pt-en"
    assert [path.name for path in downloads.iterdir()] == ["qi18naacl-dataset.tar.gz.wrong"]
    assert not registry.find(NAME).is_prepared


@pytest.mark.parametrize("name", ["..__outside.txt", "__etc__passwd"])
def test_an_archive_that_leads_out_of_its_folder_is_refused(ted, name):
    ted(**{name: b"bad"})
    with pytest.raises(InputError, match="leads out of its folder"):
        preparation.get(NAME, report=lambda line: None)
    assert not registry.find(NAME).is_prepared


def test_a_truncated_archive_is_refused(ted, server, monkeypatch):
    content = ted()[:200]
    server.files["/www.phontron.com/data/qi18naacl-dataset.tar.gz"] = content
    entry = registry.find(NAME)
    changed = vars(entry) | {"sha256": hashlib.sha256(content).hexdigest()}
    monkeypatch.setitem(registry.registry(), NAME, type(entry)(**changed))
    with pytest.raises(InputError, match="is not a whole archive"):
        preparation.get(NAME, report=lambda line: None)


def test_without_a_network_one_line_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("HEEDFUL_MIRROR", "http://127.0.0.1:9")
    with pytest.raises(InputError, match=r"http://127.0.0.1:9/host/a cannot be reached: .*HEEDFUL_MIRROR"):
        download("https://host/a", tmp_path / "a")
    monkeypatch.setenv("HEEDFUL_MIRROR", "file:///etc")
    with pytest.raises(InputError, match="must begin with http"):
        download("https://host/a", tmp_path / "a")


def test_a_missing_file_of_the_server_is_named(server, tmp_path):
    with pytest.raises(InputError, match="cannot be downloaded: 404"):
        download("https://host/a", tmp_path / "a")


def test_files_without_an_archive_are_converted_to_utf_8(server):
    server.files["/cogcomp.seas.upenn.edu/Data/QA/QC/train_5500.label"] = "DESC:def What is naïve ?\n".encode("latin-1")
    server.files["/cogcomp.seas.upenn.edu/Data/QA/QC/TREC_10.label"] = b"NUM:dist How far ?\n"
    folder = preparation.get("trec", report=lambda line: None)
    assert (folder / "train_5500.label").read_text(encoding="utf-8") == "DESC:def What is naïve ?\n"
    assert set(json.loads((folder / "text.json").read_text())["sha256"]) == {"train_5500.label", "TREC_10.label"}


def test_a_full_disk_leaves_nothing_that_counts(server, tmp_path, monkeypatch):
    server.files["/host/a"] = b"text"

    def write(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("heedful.data.texts.download._receive", write)
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        download("https://host/a", tmp_path / "a")
    assert not (tmp_path / "a").exists()


def zipped(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def test_a_corpus_of_opus_is_split_and_used_in_either_direction(server):
    lines = {side: "".join(f"{side} {number}\n" for number in range(50)) for side in ("de", "en")}
    files = {f"Books.de-en.{side}": text for side, text in lines.items()} | {"README": "Books"}
    server.files["/object.pouta.csc.fi/OPUS-Books/v1/moses/de-en.txt.zip"] = zipped(files)
    name = "opus:Books/v1/en-de"
    said = []
    folder = preparation.get(name, report=said.append)
    assert "licence: unknown" in said
    data = DataConfig(corpus=name)
    parts = {part: list(corpus) for part, corpus in corpora(Config(data=data)).items()}
    assert [len(parts[part]) for part in ("train", "valid", "test")] == [40, 5, 5]
    assert parts["test"][-1] == ("en 49", "de 49")
    assert [pair for part in ("train", "valid", "test") for pair in parts[part]] == [
        (f"en {number}", f"de {number}") for number in range(50)
    ]
    assert registry.find(name).folder == folder
    with pytest.raises(InputError, match="is not opus:CORPUS/VERSION/SOURCE-TARGET"):
        registry.find("opus:Books")


def test_a_zip_that_leads_out_of_its_folder_is_refused(server):
    server.files["/object.pouta.csc.fi/OPUS-Books/v1/moses/de-en.txt.zip"] = zipped({"../a": "", "Books.de-en.de": ""})
    with pytest.raises(InputError, match="leads out of its folder"):
        preparation.get("opus:Books/v1/de-en", report=lambda line: None)


def test_a_text_of_another_layout_than_the_task_reads_is_refused():
    with pytest.raises(InputError, match=r"'ted_hrlr:pt-en' \(pairs\) is not for task = 'generate'"):
        find_task("generate").checked(Config(task="generate", data=DataConfig(corpus=NAME)))
    with pytest.raises(InputError, match=r"'trec' \(labelled\) is not for task = 'translate'"):
        find_task("translate").checked(Config(data=DataConfig(corpus="trec")))
    assert Config(task="classify", data=DataConfig(corpus="trec")).data.train == ("trec/train_5500.label",)
