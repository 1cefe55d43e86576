"""The main jobs where there is no POSIX, as on Windows; see `without_posix`."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

pytestmark = pytest.mark.any_backend

HERE = Path(__file__).parent
SCRIPT = HERE / "without_posix.py"
HOLDING = """
import sys, time, without_posix
without_posix.hide()
from heedful.core.storage import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""
CONSOLE = {"PYTHONIOENCODING": "cp1252", "PYTHONWARNINGS": "ignore", "JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}


def command(*arguments):
    return [sys.executable, str(SCRIPT), *map(str, arguments)]


def run_without_posix(*arguments, **options):
    """Run a command to its end; return its standard output."""
    done = subprocess.run(
        command(*arguments), capture_output=True, check=False, cwd=HERE, env=os.environ | CONSOLE,
        **options,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode("cp1252", "replace")
    return done.stdout


def test_a_run_translates_without_posix(run):
    assert run_without_posix("translate", run, input="o gato não bebe\r\n".encode()).strip()


@pytest.mark.slow
def test_training_stops_resumes_and_is_locked_without_posix(recipe, tmp_path):
    run_without_posix("train", recipe, "--run", tmp_path / "run", "--train.updates", "4")
    run_without_posix("train", "--resume", tmp_path / "run", "--train.updates", "6")
    assert json.loads((tmp_path / "run" / "log.jsonl").read_text().splitlines()[-1])["update"] == 6
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING, tmp_path / "run"], stdout=subprocess.PIPE, cwd=HERE
    ) as holder:
        assert holder.stdout.readline() == b"held\n"
        refused = subprocess.run(
            command("train", "--resume", tmp_path / "run", "--train.updates", "8"), capture_output=True, check=False
        )
        holder.kill()
    assert f"is in use by process {holder.pid}".encode() in refused.stderr


@pytest.mark.slow
def test_quickstart_without_posix(tmp_path):
    done = run_without_posix("quickstart", "--run", tmp_path / "run")
    assert (tmp_path / "run" / "figures" / "attention.png").is_file()
    assert b"BLEU" in done


@pytest.mark.slow
def test_a_server_without_posix(run):
    serving = command("serve", run, "--port", "0", "--languages", "pt-en")
    with subprocess.Popen(serving, stdout=subprocess.PIPE, cwd=HERE) as server:
        try:
            address = server.stdout.readline().decode().split()[-1]
            asked = {"q": "o gato bebe", "source": "pt", "target": "en"}
            answer = httpx.post(f"{address}/translate", json=asked, timeout=60)
            assert answer.json()["translatedText"]
            server.send_signal(signal.SIGINT)
            assert server.wait(60) == 0
        finally:
            server.kill()
