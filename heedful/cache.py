"""What is kept between runs on this machine: encoded text, compiled programs."""

import os
import warnings
from pathlib import Path

from heedful.errors import InputWarning


def cache_folder():
    """Return where it is kept: HEEDFUL_CACHE, or `heedful` in XDG_CACHE_HOME, or ~/.cache/heedful."""
    if own := os.environ.get("HEEDFUL_CACHE"):
        return Path(own)
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))  # relative ones are to be ignored (XDG Base Directory 0.8)
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "heedful"


def encoded_folder():
    """Return where encoded text is kept; None where there is no home folder, of which `keep_compilations` warns."""
    try:
        return cache_folder() / "encoded"
    except RuntimeError:
        return None


def keep_compilations():
    """Let programs that JAX compiles in this process survive it, unless JAX was given a folder for them already."""
    from heedful import backend  # here, since it loads Keras: the text of a run is found without it

    try:
        backend.keep_compilations(cache_folder() / f"compiled-{backend.NAME}")
    except (OSError, RuntimeError) as error:  # there may be no home folder
        advice = "compiled programs are not kept; HEEDFUL_CACHE may name a folder for them"
        reason = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) else error
        warnings.warn(f"{advice}: {reason}", InputWarning, stacklevel=2)
