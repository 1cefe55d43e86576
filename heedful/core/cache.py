"""The folders of the cache on disk."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the cache folder: HEEDFUL_CACHE, or `heedful` in XDG_CACHE_HOME, or ~/.cache/heedful."""
    if folder := os.environ.get("HEEDFUL_CACHE"):
        return Path(folder)
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))  # relative paths must be ignored (XDG Base Directory 0.8)
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "heedful"


def encoded_folder() -> Path | None:
    """Return the cache folder of encoded text, or None without a home folder."""
    try:
        return cache_folder() / "encoded"
    except RuntimeError:
        return None
