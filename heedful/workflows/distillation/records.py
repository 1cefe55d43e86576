"""The files of a distillation: lines of JSON with texts and their candidates, and parallel text."""

import contextlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from heedful.core.validation import parse_json
from heedful.data.text_files import read_lines
from heedful.inference.bulk.records import JsonRecords, Record
from heedful.inference.predictor import ScoredText

TAUGHT, REAL = "train-taught", "train-real"  # names of files: pairs of the teacher, and real ones
ENDS = (".source", ".target")  # of their names


class CandidateRecords(JsonRecords):
    """Objects with a text, which get the candidates of its translation."""

    def result(self, record: Record, result: list[ScoredText]) -> str:  # type: ignore[override]
        return super().result(record, [[text, round(score, 4)] for text, score in result])


def json_line(content: Any) -> str:
    """Return a line of JSON."""
    return json.dumps(content, ensure_ascii=False) + "\n"


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file of JSON lines."""
    for number, line in enumerate(read_lines(path), start=1):
        yield parse_json(line, f"{path}, line {number}")


def write_pairs(pairs: Iterable[Any], paths: Iterable[Path]) -> int:
    """Write (source, target, ...) rows to two parallel files; return their number."""
    count = 0
    with contextlib.ExitStack() as files:
        sides = [files.enter_context(path.open("w", encoding="utf-8", newline="\n")) for path in paths]
        for count, pair in enumerate(pairs, start=1):  # noqa: B007 - the last number counts
            for side, text in zip(sides, pair, strict=False):
                side.write(f"{text}\n")
    return count
