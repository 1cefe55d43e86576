"""Upload to the Hugging Face hub and download from it, through a local stub of its interface."""

import base64
import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from heedful.core.errors import InputError
from heedful.interop.export.hub import push
from heedful.interop.export.huggingface import export
from heedful.runs.run import Run
from heedful.runs.weights import weights_by_name
from tests.conftest import quiet
from tests.test_huggingface import BERT, random_run

pytestmark = pytest.mark.any_backend

pytest.importorskip("huggingface_hub")

TOKEN = "hf_right"  # noqa: S105 - of the stub
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """The part of the hub that creates a model, takes files in one commit, and gives them out."""

    models: dict[str, dict[str, bytes]] = {}
    requests: list[tuple[str, str]] = []

    def log_message(self, *_):
        """Write nothing."""

    def do_POST(self):
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.requests.append((self.path, self.headers.get("Authorization", "")))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._json({"error": "Invalid username or password."}, 401)
        elif self.path == "/api/validate-yaml":
            self._json({"errors": [], "warnings": []})
        elif self.path == "/api/repos/create":
            asked = json.loads(content)
            name = f"{asked['organization']}/{asked['name']}"
            self.models.setdefault(name, {})
            self._json({"url": f"http://{self.headers['Host']}/{name}", "name": name})
        elif "/preupload/" in self.path:
            files = [{"path": file["path"], "uploadMode": "regular"} for file in json.loads(content)["files"]]
            self._json({"files": [file | {"shouldIgnore": False, "oid": None} for file in files]})
        elif "/commit/" in self.path:
            files = self.models[self._name()]
            for line in map(json.loads, content.decode().splitlines()):
                if line["key"] == "file":
                    files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            self._json(
                {
                    "commitUrl": f"http://{self.headers['Host']}/{self._name()}/commit/{COMMIT}",
                    "commitOid": COMMIT,
                    "success": True,
                }
            )
        else:
            self._json({"error": "unknown"}, 404)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        if "/resolve/" in self.path:
            owner, model, _, _, file = self.path.lstrip("/").split("/", 4)
            content = self.models[f"{owner}/{model}"][file]
            etag = hashlib.sha256(content).hexdigest()
            self._answer(content, 200, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT})
        elif (name := self._name()) in self.models:
            siblings = [{"rfilename": file, "size": len(data)} for file, data in self.models[name].items()]
            tree = [{"type": "file", "path": file, "size": len(data), "oid": COMMIT} for file, data in
                    self.models[name].items()]  # fmt: skip
            self._json(tree if "/tree/" in self.path else {"id": name, "sha": COMMIT, "siblings": siblings})
        else:
            self._json({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})

    def _name(self):
        return "/".join(self.path.split("/")[3:5])

    def _json(self, content, status=200, headers=None):
        self._answer(json.dumps(content).encode(), status, {"Content-Type": "application/json"} | (headers or {}))

    def _answer(self, content, status, headers):
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(content))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@pytest.fixture
def hub(tmp_path):
    """Start the stub; yield a function that runs a command with it as the hub."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def run(*arguments, token=TOKEN):
        environment = os.environ | {
            "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_TOKEN": token, "HF_HOME": str(tmp_path / "hf"),
            "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0",
        }  # fmt: skip
        command = [sys.executable, "-m", "heedful", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)

    yield run
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_a_pushed_model_is_imported_by_its_name(hub, tmp_path):
    run = random_run(tmp_path, "fill", BERT)
    export(run, run.path / "huggingface")
    pushed = hub("push", run.path, "someone/small-bert")
    assert pushed.returncode == 0, pushed.stderr
    assert pushed.stdout.splitlines()[-1].endswith("/someone/small-bert")
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= Hub.models[
        "someone/small-bert"
    ].keys()
    fetched = hub("import", "someone/small-bert", tmp_path / "again")
    assert fetched.returncode == 0, fetched.stderr
    before, after = (weights_by_name(one.load_model()) for one in (run, Run.open(tmp_path / "again")))
    assert all((after[name] == array).all() for name, array in before.items())
    refused = hub("push", run.path, "someone/small-bert", token="hf_wrong")
    assert refused.returncode == 2
    assert "The hub did not take" in refused.stderr
    missing = hub("import", "someone/else", tmp_path / "third")
    assert missing.returncode == 2
    assert "fetching it from the hub failed" in missing.stderr


def test_only_current_exports_are_pushed(tmp_path):
    run = random_run(tmp_path, "fill", BERT)
    with pytest.raises(InputError, match="holds no export: heedful export"):
        push(run, tmp_path / "out", "someone/model", report=quiet)
    export(run, tmp_path / "out")
    with pytest.raises(InputError, match="'model' is no name on the hub: write OWNER/NAME"):
        push(run, tmp_path / "out", "model", report=quiet)
    model = run.load_model()
    model.trainable_weights[0].assign_add(model.trainable_weights[0] * 0 + 1.0)
    run.save_model(model)
    with pytest.raises(InputError, match="was exported from other weights"):
        push(run, tmp_path / "out", "someone/model", report=quiet)
