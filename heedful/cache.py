"""The cache on disk: encoded text and compiled programs."""

import os
import warnings
from pathlib import Path

from heedful.errors import InputWarning


def cache_folder() -> Path:
    """Return the cache folder: HEEDFUL_CACHE, or `heedful` in XDG_CACHE_HOME, or ~/.cache/heedful."""
    if own := os.environ.get("HEEDFUL_CACHE"):
        return Path(own)
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))  # relative paths must be ignored (XDG Base Directory 0.8)
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "heedful"


def encoded_folder() -> Path | None:
    """Return the cache folder of encoded text, or None without a home folder (`keep_compilations` warns then)."""
    try:
        return cache_folder() / "encoded"
    except RuntimeError:
        return None


def keep_compilations() -> None:
    """Keep the programs that JAX compiles in the cache folder, unless JAX already has a folder for them."""
    from heedful import backend  # imported late, since it loads Keras, which `encoded_folder` does not need

    try:
        backend.keep_compilations(cache_folder() / f"compiled-{backend.NAME}")
    except (OSError, RuntimeError) as error:  # there may be no home folder
        advice = "compiled programs are not kept; HEEDFUL_CACHE may name a folder for them"
        reason = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) else error
        warnings.warn(f"{advice}: {reason}", InputWarning, stacklevel=2)
