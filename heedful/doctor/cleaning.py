"""A cleaned copy of a text, and the record of what was taken out of it."""

import collections
import contextlib
import gzip
import itertools
from pathlib import Path
from typing import Any

from heedful.doctor.characters import unmangled, without_unseen
from heedful.doctor.findings import KEPT
from heedful.errors import InputError

REPORT = "report.tsv"
MENDS = {"mangled": unmangled, "unseen": without_unseen}
KEEP, MEND, TAKE_OUT = "kept", "mended", "taken out"


def clean(text, examination, folder):
    """Write copies of a text's files without the rows that were found, and what can be mended mended.

    Args:
        text: `Rows`.
        examination: of that text.
        folder: for the copies, which keep their names, and `report.tsv`: line number, what was done, kinds, the row.

    Returns:
        how many rows were kept as they are, mended, and taken out.

    Raises:
        InputError: a file would be written over, or two files have one name.
    """
    folder = Path(folder)
    paths = [path for group in text.groups for path in group]
    if len({REPORT, *(path.name for path in paths)}) <= len(paths):
        names = ", ".join(map(str, paths))
        raise InputError(f"Two of {names} have the same name, or one that of the {REPORT}: rename it first.")
    if there := [str(folder / name) for name in (*(path.name for path in paths), REPORT) if (folder / name).exists()]:
        raise InputError(f"{', '.join(there)} exists already: choose another folder for the cleaned copy.")
    kinds: dict[Any, Any] = {}
    for finding in examination.findings:
        if finding.kind not in KEPT:
            for row in finding.rows.tolist():
                kinds.setdefault(row, []).append(finding.kind)
    folder.mkdir(parents=True, exist_ok=True)
    counts: collections.Counter[str] = collections.Counter()
    numbers = itertools.count()
    with _opened(folder / REPORT) as report:
        for group in text.groups:
            with contextlib.ExitStack() as files:
                copies = [files.enter_context(_opened(folder / path.name)) for path in group]
                separator = text.separator_of(group)
                for row, number in zip(text.read(group), numbers, strict=False):  # `numbers` second: none is lost
                    found = kinds.get(number, [])
                    action, new = _treated(row, found, text.texts)
                    counts[action] += 1
                    if action != KEEP:
                        line = [str(number + 1), action, ", ".join(found), *(part or "" for part in row)]
                        report.write("\t".join(line) + "\n")
                    if action != TAKE_OUT:
                        _write(copies, new, separator)
    return counts[KEEP], counts[MEND], counts[TAKE_OUT]


def _write(files, row, separator):
    parts = row if len(files) == len(row) else [separator.join(row)]
    for file, part in zip(files, parts, strict=True):
        file.write(f"{part}\n")


def _treated(row, kinds, texts):
    """Return what is to be done with a row, and the row as it is to be written."""
    if not kinds and None not in row:
        return KEEP, row
    if None in row or not MENDS.keys() >= set(kinds):
        return TAKE_OUT, row
    mended = row
    for kind, mend in MENDS.items():  # in this order: what is unseen may be half of what is mangled
        if kind in kinds:
            mended = tuple(mend(part) if number in texts else part for number, part in enumerate(mended))
    return (MEND, mended) if all(part.strip() for part in mended) else (TAKE_OUT, row)


def _opened(path):
    """Open a file for text, compressed if its name says so; what is not UTF-8 is written as it was read."""
    options: dict[str, Any] = {"encoding": "utf-8", "errors": "surrogateescape", "newline": "\n"}
    return gzip.open(path, "wt", **options) if path.suffix == ".gz" else path.open("w", **options)
