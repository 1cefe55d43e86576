"""What is kept between runs on this machine: encoded text, compiled programs."""

import os
import warnings
from pathlib import Path

from heedful import backend
from heedful.errors import InputWarning


def cache_folder():
    """Return where it is kept: HEEDFUL_CACHE or ~/.cache/heedful."""
    return Path(os.environ.get("HEEDFUL_CACHE") or Path.home() / ".cache" / "heedful")


def keep_compilations():
    """Let compiled programs survive this process."""
    try:
        backend.keep_compilations(cache_folder() / f"compiled-{backend.NAME}")
    except OSError as error:
        advice = "compiled programs are not kept; HEEDFUL_CACHE may name a folder for them"
        warnings.warn(f"{advice}: {error.strerror}: {error.filename}", InputWarning, stacklevel=2)
