"""The text of a run, for what shows its lines: a run folder from elsewhere may name any file of this machine."""

import contextlib
import os
from pathlib import Path

from heedful.config import PARTS
from heedful.core.cache import cache_folder
from heedful.core.errors import InputError
from heedful.data.corpus import Corpus, matching
from heedful.runs.run import Run


def text_to_show(run: Run) -> dict[str, Corpus]:
    """Return the corpora of a run by part, if all its files lie where text to show may lie.

    That is below HEEDFUL_DATA, in the run folder, among the texts that `heedful data get` has downloaded, or in what
    the user has named, see `Run.with_text`.

    Raises:
        InputError: a file lies elsewhere, or files are missing.
    """
    allowed = [Path(os.environ.get("HEEDFUL_DATA", "data")), run.path, *run.named_text]
    with contextlib.suppress(RuntimeError):  # there is no home folder, so no downloaded text either
        allowed.append(cache_folder())
    allowed = [folder.resolve() for folder in allowed]
    for part in PARTS:
        for name in getattr(run.config.data, part):
            for path in matching(name):
                if path.exists() and not any(path.resolve().is_relative_to(folder) for folder in allowed):
                    raise InputError(
                        f"{path}, a text of {run.path}, is not below HEEDFUL_DATA: name it with --text to show its "
                        "lines."
                    )
    return run.task.find_corpora(run.config)
