"""The training log in a run folder: scores as JSON lines, and sample texts of validations."""

import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from heedful.errors import InputError
from heedful.storage import plain_file, write_text
from heedful.validation import parse_json

LOG, SAMPLES = "log.jsonl", "samples.txt"
_HEADING = re.compile(r"^update (\d+)$", re.MULTILINE)


class TrainingLog:
    """The files log.jsonl and samples.txt of a run folder.

    Args:
        folder: the run folder.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def append(self, entry: dict[str, Any]) -> None:
        """Append a line to log.jsonl, without non-finite numbers, which JSON cannot represent."""
        entry = {name: value for name, value in entry.items() if not isinstance(value, float) or math.isfinite(value)}
        with self._appending(LOG) as file:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")

    def append_samples(self, update: int, samples: Iterable[str]) -> None:
        """Append the sample texts of a validation to samples.txt."""
        with self._appending(SAMPLES) as file:
            file.write("\n".join([f"update {update}", *samples, "", ""]))

    def read(self) -> list[dict[str, Any]]:
        """Return the entries of log.jsonl."""
        path = self.folder / LOG
        if not path.exists():
            return []
        # Skip the last piece: it is empty, or a line cut off by a full disk.
        lines = plain_file(self.folder, LOG).read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
        entries = [parse_json(line, path) for line in lines]
        if not all(isinstance(entry, dict) and isinstance(entry.get("update"), int) for entry in entries):
            raise InputError(f"{path} is not a training log: a line has no update.")
        return entries

    def forget_after(self, update: int) -> None:
        """Delete the entries of later updates, which will be repeated, from both files."""
        entries = [entry for entry in self.read() if entry["update"] <= update]
        write_text(self.folder / LOG, "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries))
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
