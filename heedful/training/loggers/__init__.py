"""Loggers: programs outside heedful that keep the curves of a training, such as Weights & Biases."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from heedful.core.errors import InputError
from heedful.core.plugins import find_logger
from heedful.core.storage import write_text
from heedful.core.validation import read_json
from heedful.runs.training_log import LOG, PROGRESS, TrainingLog

LOGGERS = "loggers.json"  # what each logger has got, in the run folder
PREFIXES = {PROGRESS: "progress/", LOG: ""}
PROJECT = "heedful"


class Logger(Protocol):
    """A logger; another package adds one with the entry point `heedful.loggers: NAME = "package.module:CLASS"`.

    Args:
        folder: the run folder.
        settings: all settings of the run by their full names.
        id: what the logger called this run before it was resumed; None: it is new.
    """

    id: str
    """What the logger calls this run."""
    loses_records: bool
    """Whether records that were written may be lost if the training is killed. After that all are written again; those
    that the logger has, it must ignore."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], id: str | None): ...

    def write(self, update: int, scalars: Mapping[str, float]) -> None:
        """Add values to the curves at an update; updates never decrease."""

    def close(self) -> None:
        """Send what is not sent yet; the run may be resumed later."""


class Loggers:
    """Passes the records of progress.jsonl and log.jsonl to loggers, as they are written.

    A training that is resumed repeats the updates since its last state. Their records are left out, since the loggers
    have them; so every curve continues without a gap and without a doubled update. A logger that is new to a run, or
    that failed before, gets what it lacks.

    Args:
        names: of the loggers.
        folder: the run folder.
        settings: all settings of the run by their full names.
        report: called with a message when a logger fails; the training continues without it.

    Raises:
        InputError: a logger is unknown, or its package is not installed.
    """

    def __init__(self, names: Sequence[str], folder: Path, settings: Mapping[str, Any], report: Callable[[str], Any]):
        self.path, self.report = folder / LOGGERS, report
        self.state: dict[str, Any] = read_json(self.path) if names and self.path.is_file() else {}
        self.loggers: dict[str, Logger] = {}
        for name in names:
            known = self.state.setdefault(name, {"id": None, "closed": True, "updates": {}})
            kind = find_logger(name)
            try:
                self.loggers[name] = logger = kind(folder, settings, known["id"])
            except InputError:  # its package is not installed
                raise
            except Exception as error:  # noqa: BLE001 - of another program, whose failure must not end a training
                self._report_failure(name, error)
                continue
            if logger.loses_records and not known["closed"]:
                known["updates"] = {}
            known |= {"id": logger.id, "closed": False}
        if self.loggers:  # what they lack so far
            log = TrainingLog(folder)
            entries = [(entry["update"], kind, entry) for kind in PREFIXES for entry in log.read(kind)]
            for _, kind, entry in sorted(entries, key=lambda each: each[:2]):
                self._pass_on(entry, kind)
            self._save()

    def record(self, entry: Mapping[str, Any], kind: str) -> None:
        """Pass on a record of the log `kind`, if it is one of numbers."""
        if kind in PREFIXES and self.loggers:
            self._pass_on(entry, kind)
            self._save()

    def _pass_on(self, entry, kind):
        """Pass a record on to the loggers that lack it."""
        update = entry["update"]
        scalars = {
            PREFIXES[kind] + name: float(value)
            for name, value in entry.items()
            if name != "update" and isinstance(value, (int, float)) and not isinstance(value, bool)
        }
        for name in list(self.loggers):
            got = self.state[name]["updates"]
            if update > got.get(kind, 0) and self._attempt(name, lambda logger: logger.write(update, scalars)):
                got[kind] = update

    def close(self) -> None:
        """Close all loggers."""
        for name in list(self.loggers):
            self.state[name]["closed"] = self._attempt(name, lambda logger: logger.close())
        if self.state:
            self._save()

    def _attempt(self, name, action):
        """Return whether an action of a logger succeeds; a logger that fails is left out from then on."""
        try:
            action(self.loggers[name])
            return True
        except Exception as error:  # noqa: BLE001 - of another program, whose failure must not end a training
            del self.loggers[name]
            self._report_failure(name, error)
            return False

    def _report_failure(self, name, error):
        self.report(f"The logger {name} has failed, and the training continues without it: {error}")

    def _save(self):
        write_text(self.path, json.dumps(self.state, indent=2) + "\n")
