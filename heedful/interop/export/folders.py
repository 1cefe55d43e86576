"""The folder of an export: written next to its destination, then moved there; foreign files are never overwritten."""

import contextlib
import fnmatch
import json
from collections.abc import Iterator
from pathlib import Path

from heedful.core.errors import InputError
from heedful.core.storage import whole_folder
from heedful.core.validation import read_json
from heedful.runs.run import Run

ORIGIN = "heedful.json"  # file with the fingerprint of the exported weights
PARITY = "parity.json"  # file that compares the export's outputs with heedful's


def exported_weights(folder: Path) -> str | None:
    """Return the fingerprint of the weights from which a model was exported, or None if it is unknown."""
    path = Path(folder) / ORIGIN
    origin = read_json(path) if path.is_file() else None
    return origin.get("weights") if isinstance(origin, dict) else None


def write_origin(folder: Path, run: Run) -> None:
    """Record from which weights a folder was exported."""
    (folder / ORIGIN).write_text(json.dumps({"weights": run.weights_fingerprint()}) + "\n", encoding="utf-8")


def refuse_foreign(folder: Path, patterns: tuple[str, ...]) -> None:
    """Raise `InputError` if a folder holds files of no export; `patterns` match the names that an export writes."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: choose a folder.")
    names = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    foreign = [name for name in names if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    if names and (foreign or exported_weights(folder) is None):
        raise InputError(
            f"{folder} contains {(foreign or names)[0]}, which heedful did not export: choose another folder."
        )


@contextlib.contextmanager
def replacing(folder: Path, patterns: tuple[str, ...]) -> Iterator[Path]:
    """Yield an empty folder for an export. It replaces `folder` if the block succeeds; otherwise `folder` is unchanged.

    Args:
        patterns: see `refuse_foreign`.

    Raises:
        InputError: `folder` has files that no export wrote, see `refuse_foreign`.
    """
    refuse_foreign(folder, patterns)
    with whole_folder(folder) as aside:
        yield aside
