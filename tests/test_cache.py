"""The cache folder: as set in the environment, otherwise the default of the platform."""

from pathlib import Path

import pytest

from heedful import backend
from heedful.core.cache import cache_folder, encoded_folder
from heedful.core.errors import InputWarning

pytestmark = pytest.mark.any_backend


@pytest.mark.parametrize(
    ("own", "shared", "folder"),
    [
        ("/own", "/shared", "/own"),
        ("", "/shared", "/shared/heedful"),
        (None, "/shared", "/shared/heedful"),
        (None, "relative", "/home/reader/.cache/heedful"),
        (None, "", "/home/reader/.cache/heedful"),
        (None, None, "/home/reader/.cache/heedful"),
    ],
)
def test_the_cache_folder_follows_the_environment(own, shared, folder, monkeypatch):
    monkeypatch.setenv("HOME", "/home/reader")
    for name, value in {"HEEDFUL_CACHE": own, "XDG_CACHE_HOME": shared}.items():
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    assert cache_folder() == Path(folder)


def test_nothing_is_cached_without_a_home_folder(monkeypatch):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    for name in ("HEEDFUL_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert encoded_folder() is None
    with pytest.warns(InputWarning, match="compiled programs are not kept"):
        backend.keep_compilations()
