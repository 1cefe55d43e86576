"""Weblate's machinery for DeepL and LibreTranslate, from its package, against a server of ours."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CALLS = Path(__file__).parent / "weblate_calls.py"


@pytest.fixture(scope="module")
def weblate_python(tmp_path_factory):
    """The Python of an environment with Weblate: HEEDFUL_WEBLATE_PYTHON, or a new one, which takes minutes.

    Weblate needs headers of libraries: on Debian libacl1-dev, libgirepository1.0-dev and libcairo2-dev.
    """
    if named := os.environ.get("HEEDFUL_WEBLATE_PYTHON"):
        return named
    folder = tmp_path_factory.mktemp("weblate")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    (folder / "override.txt").write_text("pygobject<3.50\n")  # later ones need a newer library than Debian 12 has
    subprocess.run([python, "-m", "pip", "install", "--quiet", "uv"], check=True)
    install = [python, "-m", "uv", "pip", "install", "--quiet", "--python", python, "psycopg[binary]"]
    subprocess.run([*install, "weblate", "--override", folder / "override.txt"], check=True)
    return python


@pytest.mark.slow
def test_weblate_finds_what_it_expects(address, weblate_python):
    environment = os.environ | {"CI_DATABASE": "postgresql", "CI_DB_PASSWORD": "unused"}
    called = subprocess.run(
        [weblate_python, CALLS, address], check=True, stdout=subprocess.PIPE, timeout=300, env=environment
    )
    results = json.loads(called.stdout.splitlines()[-1])
    assert ["PT", "EN"] in results["deepl languages"]
    assert results["libretranslate languages"] == ["en", "pt"]
    [[one], [other]] = results["deepl"].values()
    assert one["text"].count('<x id="12"></x>') == 1
    assert other["text"]
    assert list(results["glossaries"]) == ["weblate:1:pt:en:1"]
    assert results["glossaries left"] == {}
    [[one], [other]] = results["libretranslate"].values()
    assert one["text"].count("[X5X]") == 1
