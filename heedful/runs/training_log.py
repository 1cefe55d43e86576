"""The logs of a training in its run folder: scores, progress and samples as JSON lines, and samples as text."""

import json
import math
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from heedful.core.errors import InputError
from heedful.core.storage import plain_file, write_text
from heedful.core.validation import parse_json

LOG, PROGRESS = "log.jsonl", "progress.jsonl"  # a line for each validation; a line every few seconds
SAMPLES, SAMPLE_DATA = "samples.txt", "samples.jsonl"  # what validations wrote, for people and for programs
JSON_LOGS = (LOG, PROGRESS, SAMPLE_DATA)
_HEADING = re.compile(r"^update (\d+)$", re.MULTILINE)


class Sample(NamedTuple):
    """What a validation shows of one text."""

    line: str
    """For people."""
    data: dict[str, Any]
    """For programs: texts, ids and attention, as JSON."""


class TrainingLog:
    """The files log.jsonl, progress.jsonl, samples.txt and samples.jsonl of a run folder.

    Args:
        folder: the run folder.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.listeners: list[Callable[[dict[str, Any], str], Any]] = []
        """Called with each entry and the name of its file, after it was appended."""

    def append(self, entry: dict[str, Any], name: str = LOG) -> None:
        """Append a line to one of `JSON_LOGS`, without non-finite numbers, which JSON cannot represent."""
        entry = {key: value for key, value in entry.items() if not isinstance(value, float) or math.isfinite(value)}
        with self._appending(name) as file:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
        for listener in self.listeners:
            listener(entry, name)

    def append_samples(self, update: int, samples: Sequence[Sample]) -> None:
        """Append the samples of a validation to samples.txt and samples.jsonl."""
        with self._appending(SAMPLES) as file:
            file.write("\n".join([f"update {update}", *(sample.line for sample in samples), "", ""]))
        if samples:
            self.append({"update": update, "samples": [sample.data for sample in samples]}, SAMPLE_DATA)

    def read(self, name: str = LOG) -> list[dict[str, Any]]:
        """Return the entries of one of `JSON_LOGS`."""
        path = self.folder / name
        if not path.exists():
            return []
        # Skip the last piece: it is empty, or a line cut off by a full disk.
        lines = plain_file(self.folder, name).read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
        return _entries(lines, path)

    def forget_after(self, update: int) -> None:
        """Delete the entries of later updates, which will be repeated, from all files."""
        for name in JSON_LOGS:
            if name == LOG or (self.folder / name).exists():
                entries = [entry for entry in self.read(name) if entry["update"] <= update]
                lines = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries)
                write_text(self.folder / name, lines)
        path = self.folder / SAMPLES
        if path.exists():  # a full disk may have cut it within a character
            text = plain_file(self.folder, SAMPLES).read_text(encoding="utf-8", errors="replace")
            later = (heading.start() for heading in _HEADING.finditer(text) if int(heading[1]) > update)
            write_text(path, text[: next(later, len(text))])

    def _appending(self, name):
        """Open a file for appending; raise `InputError` if it is a link out of the folder."""
        if (self.folder / name).is_symlink():
            plain_file(self.folder, name)
        return (self.folder / name).open("a", encoding="utf-8")


class LogTail:
    """The entries of a log that another process writes, as they come; reads only what was added.

    Args:
        folder: the run folder.
        name: one of `JSON_LOGS`.
    """

    def __init__(self, folder: Path, name: str):
        self.folder, self.name = folder, name
        self._file, self._place = 0, 0  # number of the file, which a resumed training replaces, and bytes read

    def read(self) -> list[dict[str, Any]]:
        """Return the entries since the last call; all of them at the first one, and after the log was cut back.

        Raises:
            InputError: the file is no training log.
        """
        path = self.folder / self.name
        if not path.exists():
            return []
        with open(plain_file(self.folder, self.name), "rb") as file:
            state = os.fstat(file.fileno())
            if state.st_ino != self._file or state.st_size < self._place:
                self._file, self._place = state.st_ino, 0
            file.seek(self._place)
            whole, end, _ = file.read().rpartition(b"\n")  # the last line may be incomplete
        self._place += len(whole) + len(end)
        return _entries(whole.decode(errors="replace").split("\n") if end else [], path)


def _entries(lines, path):
    """Return the entries in the lines of a log."""
    entries = [parse_json(line, path) for line in lines]
    if not all(isinstance(entry, dict) and isinstance(entry.get("update"), int) for entry in entries):
        raise InputError(f"{path} is not a training log: a line has no update.")
    return entries
