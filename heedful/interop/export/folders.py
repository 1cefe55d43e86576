"""The folder of an export: written aside and moved into place, and never over somebody's files."""

import contextlib
import fnmatch
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from heedful.core.errors import InputError
from heedful.core.validation import read_json
from heedful.runs.run import Run

ORIGIN = "heedful.json"  # file with the fingerprint of the exported weights
PARITY = "parity.json"  # file with the comparison of both engines


def exported_weights(folder: Path) -> str | None:
    """Return the fingerprint of the weights from which a model was exported, or None if it is unknown."""
    path = Path(folder) / ORIGIN
    origin = read_json(path) if path.is_file() else None
    return origin.get("weights") if isinstance(origin, dict) else None


def write_origin(folder: Path, run: Run) -> None:
    """Record from which weights a folder was exported."""
    (folder / ORIGIN).write_text(json.dumps({"weights": run.weights_fingerprint()}) + "\n", encoding="utf-8")


def refuse_foreign(folder: Path, patterns: tuple[str, ...]) -> None:
    """Raise `InputError` if a folder has files that no export wrote; `patterns` are those of its names."""
    names = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    foreign = [name for name in names if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    if names and (foreign or exported_weights(folder) is None):
        raise InputError(
            f"{folder} holds {(foreign or names)[0]}, which heedful has not exported: choose another folder."
        )


def move(exported: Path, folder: Path) -> None:
    """Move an exported model to a folder, replacing an earlier one."""
    shutil.rmtree(folder, ignore_errors=True)
    exported.rename(folder)


@contextlib.contextmanager
def replacing(folder: Path, patterns: tuple[str, ...], ending: str = "tried") -> Iterator[Path]:
    """Yield an empty folder to write to; without an error it then replaces `folder`, which stays as it is otherwise.

    Raises:
        InputError: `folder` has files that no export wrote, see `refuse_foreign`.
    """
    folder = Path(folder).resolve()  # "." has no name for a sibling folder
    refuse_foreign(folder, patterns)
    aside = folder.with_name(f".{folder.name}.{ending}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        yield aside
        move(aside, folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
