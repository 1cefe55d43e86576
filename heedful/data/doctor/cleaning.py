"""Writing a cleaned copy of a text, and a report of the rows that were changed or removed."""

import collections
import contextlib
import functools
import itertools
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from heedful.core.errors import InputError
from heedful.data.doctor.characters import fix_mojibake, without_unseen
from heedful.data.doctor.examination import Examination
from heedful.data.doctor.findings import KEPT
from heedful.data.doctor.rows import Rows
from heedful.data.normalization import normalized
from heedful.data.text_files import open_for_writing

REPORT = "report.tsv"
MENDS: dict[str, Callable[[str], str]] = {
    "mangled": fix_mojibake, "unseen": without_unseen, "forms": functools.partial(normalized, kind="nfc"),
}  # fmt: skip
KEEP, REPAIR, REMOVE = "kept", "repaired", "removed"


def clean(text: Rows, examination: Examination, folder: str | Path) -> tuple[int, int, int]:
    """Write copies of a text's files in which faulty rows are repaired, or removed if that is not possible.

    Args:
        text: `Rows`.
        examination: the `Examination` of that text.
        folder: for the copies, which keep their names, and `report.tsv`: line number, action, kinds, row.

    Returns:
        the number of rows kept unchanged, repaired and removed.

    Raises:
        InputError: a file would be overwritten, two files have the same name, or a file is not plain text.
    """
    if not text.can_be_written:
        raise InputError(f"{text.name} is a file of another program, which cannot be rewritten: correct it there.")
    folder = Path(folder)
    paths = [path for group in text.groups for path in group]
    if len({REPORT, *(path.name for path in paths)}) <= len(paths):
        names = ", ".join(map(str, paths))
        raise InputError(f"Two of {names} have the same name, or one is called {REPORT}: rename it first.")
    if there := [str(folder / name) for name in (*(path.name for path in paths), REPORT) if (folder / name).exists()]:
        raise InputError(f"{', '.join(there)} exists already: choose another folder for the cleaned copy.")
    kinds: dict[Any, Any] = {}
    for finding in examination.findings:
        if finding.kind not in KEPT:
            for row in finding.rows.tolist():
                kinds.setdefault(row, []).append(finding.kind)
    folder.mkdir(parents=True, exist_ok=True)
    # Each file gets its name when all are written: a copy that ends too early would look finished.
    with tempfile.TemporaryDirectory(prefix=".", dir=folder) as aside:
        counts = _write_copies(text, kinds, Path(aside))
        for name in (*(path.name for path in paths), REPORT):
            Path(aside, name).replace(folder / name)
    return counts[KEEP], counts[REPAIR], counts[REMOVE]


def _write_copies(text: Rows, kinds: Mapping[int, list[str]], folder: Path) -> collections.Counter[str]:
    """Write the copies and the report; `kinds` are the faults by row. Return how many rows got each action."""
    counts: collections.Counter[str] = collections.Counter()
    numbers = itertools.count()
    with open_for_writing(folder / REPORT) as report:
        for group in text.groups:
            with contextlib.ExitStack() as files:
                copies = [files.enter_context(open_for_writing(folder / path.name)) for path in group]
                separator = text.separator_of(group)
                for row, number in zip(text.read(group), numbers, strict=False):  # in this order, no number is lost
                    faults = kinds.get(number, [])
                    action, new = _treated(row, faults, text.texts)
                    counts[action] += 1
                    if action != KEEP:
                        line = [str(number + 1), action, ", ".join(faults), *(part or "" for part in row)]
                        report.write("\t".join(line) + "\n")
                    if action != REMOVE:
                        _write(copies, new, separator)
    return counts


def _write(files, row, separator):
    parts = row if len(files) == len(row) else [separator.join(row)]
    for file, part in zip(files, parts, strict=True):
        file.write(f"{part}\n")


def _treated(row, kinds, texts):
    """Return the action for a row, and the row to write."""
    if not kinds and None not in row:
        return KEEP, row
    if None in row or not MENDS.keys() >= set(kinds):
        return REMOVE, row
    mended = row
    for kind, mend in MENDS.items():  # in this order: an unseen character may be part of mangled text
        if kind in kinds:
            mended = tuple(mend(part) if number in texts else part for number, part in enumerate(mended))
    return (REPAIR, mended) if all(part.strip() for part in mended) else (REMOVE, row)
