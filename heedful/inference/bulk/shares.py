"""A file translated in shares, each by a process of its own, on any machine; finished shares are never computed again.

Shares are contiguous, and are cut between the windows in which a translator reads lines. So every line is decoded
together with the same other lines as without shares, and the gathered result is the same to the last byte.
"""

import contextlib
import functools
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from heedful import __version__
from heedful.core.errors import InputError
from heedful.core.output import output_file
from heedful.core.storage import file_hash, write_text
from heedful.core.validation import flat_table, read_json
from heedful.inference.bulk.records import Records

Translate = Callable[[Iterable[str], int], Iterator[Any]]  # from lines and the number of the first to results


class Share(NamedTuple):
    """One of several parts of a file.

    Args:
        number: from 1.
        total: how many there are.
    """

    number: int
    total: int

    @classmethod
    def parse(cls, text: str) -> "Share":
        """Return the share that a text such as `3/8` names; raise `ValueError` if it names none."""
        number, _, total = text.partition("/")
        if not (number.isdecimal() and total.isdecimal() and 1 <= int(number) <= int(total)):
            raise ValueError(f"{text!r} is not a share such as 3/8")
        return cls(int(number), int(total))

    def bounds(self, count: int, window: int) -> tuple[int, int]:
        """Return the first record, and the one after the last, of `count` records read in windows.

        >>> [Share(number, 3).bounds(10, 2) for number in (1, 2, 3)]
        [(0, 2), (2, 6), (6, 10)]
        """
        windows = -(-count // window)
        first, last = ((number * windows // self.total) * window for number in (self.number - 1, self.number))
        return min(first, count), min(last, count)

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"


class Bulk:
    """The translation of a file.

    Args:
        records: what is translated.
        out: the file of the results. Shares are kept in the folder OUT.shares until they are gathered.
        made_with: what determines the results, besides the records: weights, settings, ...
        window: records that are read together.
    """

    def __init__(self, records: Records, out: Path, made_with: dict[str, Any], window: int):
        self.records, self.out, self.window = records, out, window
        self.made_with = json.loads(json.dumps(made_with | {"version": __version__}))

    def windows(self) -> int:
        """Return in how many windows the records are read: at most so many shares have work."""
        return -(-self._count // self.window)

    @functools.cached_property
    def _count(self) -> int:
        """The number of records, for which the whole file is read."""
        return self.records.count()

    def whole(self, translate: Translate) -> int:
        """Translate all records; write OUT when all are done. Return their number."""
        count = self._count
        self.records.fingerprint(0, count)  # a record without a text is reported before hours of work
        self._write(self.out, 0, count, translate)
        return count

    def compute(self, share: Share, translate: Translate) -> int | None:
        """Translate a share; return the number of its records, or None if it was finished before."""
        start, stop = share.bounds(self._count, self.window)
        wanted = self._wanted(share, start, stop)
        path, manifest = self._paths(share)
        if manifest.is_file() and path.is_file() and not _misfits(path, manifest, wanted):
            return None
        path.parent.mkdir(parents=True, exist_ok=True)
        self._write(path, start, stop, translate)
        write_text(manifest, json.dumps(wanted | {"output": file_hash(path)}, indent=2) + "\n")
        return stop - start

    def gather(self, total: int, remove: bool = False) -> int:
        """Join all shares in OUT, and `remove` them; return the number of records.

        Raises:
            InputError: shares are missing, or were computed from other records, weights or settings.
        """
        count, parts, missing = self._count, [], []
        for number in range(1, total + 1):
            share = Share(number, total)
            start, stop = share.bounds(count, self.window)
            path, manifest = self._paths(share)
            if not manifest.is_file() or not path.is_file():
                missing.append(str(share))
                continue
            if misfits := _misfits(path, manifest, self._wanted(share, start, stop)):
                raise InputError(
                    f"Share {share} in {path.parent} does not fit: {', '.join(misfits)}. Gather it with what it was "
                    f"computed with, or delete {manifest.name} and compute it again."
                )
            parts.append(path)
        if missing:
            raise InputError(f"{len(missing)} of {total} shares are not finished: {', '.join(missing)}.")
        with output_file(self.out) as aside:
            self.records.join(parts, aside)
        if remove:
            for number in range(1, total + 1):
                for path in self._paths(Share(number, total)):
                    path.unlink()
            with contextlib.suppress(OSError):  # shares of another total are kept
                parts[0].parent.rmdir()
        return count

    def _wanted(self, share: Share, start: int, stop: int) -> dict[str, Any]:
        """Return what the manifest of a finished share says."""
        return {
            "share": str(share), "start": start, "stop": stop, "made_with": self.made_with,
            "input": self.records.fingerprint(start, stop),
        }  # fmt: skip

    def _paths(self, share: Share) -> tuple[Path, Path]:
        folder = self.out.with_name(f"{self.out.name}.shares")
        stem = f"{share.number:05d}-of-{share.total:05d}"
        return folder / f"{stem}{self.out.suffix}", folder / f"{stem}.manifest.json"

    def _write(self, path: Path, start: int, stop: int, translate: Callable[..., Any]) -> None:
        """Translate the records from `start` to `stop` into a file that exists only when all are written."""
        kept: deque[Any] = deque()  # records that are read ahead

        def texts() -> Iterator[str]:
            for record in self.records.read(start, stop):
                kept.append(record)
                yield record.text

        with output_file(path) as aside, self.records.writer(aside) as write:
            for result in translate(texts(), start + 1):
                write(self.records.result(kept.popleft(), result))


def _misfits(path: Path, manifest: Path, wanted: Mapping[str, Any]) -> list[str]:
    """Return why a share is not what is wanted: another input, another setting, or that a file of it is damaged."""
    content = read_json(manifest)
    if not isinstance(content, dict):
        return [f"{manifest.name} is damaged"]
    mine, theirs = (flat_table({name: table.get(name) for name in wanted}) for table in (wanted, content))
    names = [name for name in mine | theirs if name not in mine or name not in theirs or mine[name] != theirs[name]]
    if names or content.get("output") == file_hash(path):
        return [f"another {name.removeprefix('made_with.')}" for name in names]
    return [f"{path.name} is damaged"]
