"""Files of texts: lines, tab-separated columns, JSON lines and Parquet; what is read, and how results are added."""

import contextlib
import hashlib
import itertools
import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from heedful.core.errors import InputError, extra_needed
from heedful.core.validation import parse_json
from heedful.data.corpus import resolve
from heedful.data.text_files import one_line, read_lines, uncompressed_name

FORMATS = {".tsv": "tsv", ".jsonl": "jsonl", ".parquet": "parquet"}  # by the end of a file's name; others are text
INTO = "translation"  # where the result goes, by default
_KEY, _COLON, _COMMA = re.compile(r'\s*"'), re.compile(r"\s*:\s*"), re.compile(r"\s*,")  # of a JSON object
FIELDS = {"tsv": "1", "jsonl": "text", "parquet": "text"}  # where the text is, by default

ROWS_AT_ONCE = 10_000  # written to a Parquet file at once


class Record(NamedTuple):
    """A record of a file, and the text in it."""

    text: str
    content: Any
    """The whole line, or what it contains."""


def format_of(path: Path) -> str:
    """Return the format of a file by its name: `text`, `tsv`, `jsonl` or `parquet`; `.gz` and the like may follow."""
    return FORMATS.get(Path(uncompressed_name(path)).suffix.lower(), "text")


def opened(path: Path, field: str | None = None, into: str | None = None) -> "Records":
    """Return the records of a file.

    Args:
        path: the file, looked up in the working directory and in HEEDFUL_DATA.
        field: where the text is: a column (tsv, from 1) or a field (jsonl, parquet).
        into: field that receives the result; None: `translation`. In tsv it is a new last column.

    Raises:
        InputError: the file is missing, or its format has no fields.
    """
    file, kind = resolve(path), format_of(path)
    if not file.exists():
        raise InputError(f"{path} does not exist.")
    if file.is_dir():
        raise InputError(f"{path} is a folder, not a text file.")
    if (field is not None or into is not None) and kind == "text":
        raise InputError(f"{path} is plain text and has no fields; names end in {', '.join(FORMATS)} where it has.")
    if into is not None and kind == "tsv":
        raise InputError(f"The columns of {path} have no names: the translation is a new last column.")
    copy = None if file.is_file() else _Copy(file)
    kinds = {"text": Records, "tsv": TabbedRecords, "jsonl": JsonRecords, "parquet": ParquetRecords}
    records = kinds[kind](copy.path if copy else file, FIELDS.get(kind, "") if field is None else field, into or INTO)
    records.copy = copy
    return records


class _Copy:
    """A copy of what can be read only once, such as a pipe or standard input; it exists as long as this object."""

    def __init__(self, path: Path):
        self._folder = tempfile.TemporaryDirectory()
        self.path = Path(self._folder.name) / path.name
        with path.open("rb") as pipe, self.path.open("wb") as file:
            shutil.copyfileobj(pipe, file)


class Records:
    """Plain text: a text on each line; the result replaces it.

    Args:
        path: the file.
        field: see `opened`.
        into: see `opened`.
    """

    def __init__(self, path: Path, field: str, into: str):
        self.path, self.field, self.into = path, field, into
        self.copy: _Copy | None = None  # what `path` belongs to, if the input can be read only once

    def count(self) -> int:
        """Return the number of records."""
        return sum(1 for _ in read_lines(self.path))

    def read(self, start: int, stop: int) -> Iterator[Record]:
        """Yield the records from `start` up to `stop`, counted from 0."""
        for number, line in enumerate(itertools.islice(read_lines(self.path), start, stop), start=start + 1):
            yield self.record(line, number)

    def fingerprint(self, start: int, stop: int) -> str:
        """Return the SHA-256 fingerprint of some records."""
        digest = hashlib.sha256()
        for record in self.read(start, stop):
            digest.update(repr(record.content).encode(errors="surrogatepass") + b"\n")
        return digest.hexdigest()

    def record(self, line: str, number: int) -> Record:
        """Return the record of line `number`; raise `InputError` if the text is not where it should be."""
        return Record(line, line)

    def result(self, record: Record, result: str) -> Any:
        """Return what is written for a record and its result, which is one line unless the format can hold several."""
        return one_line(result)

    @contextlib.contextmanager
    def writer(self, path: Path) -> Iterator[Any]:
        """Open a file for results; yield a function that writes one, as `result` returned it."""
        # A field that is not translated may hold a lone surrogate, which JSON can only escape.
        with path.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            yield lambda line: file.write(f"{line}\n")

    def join(self, parts: list[Path], path: Path) -> None:
        """Write what several files of results contain to one file."""
        with path.open("wb") as whole:
            for part in parts:
                with part.open("rb") as file:
                    while block := file.read(1 << 20):
                        whole.write(block)


class TabbedRecords(Records):
    """Tab-separated columns; the result is a new last one."""

    def __init__(self, path: Path, field: str, into: str):
        super().__init__(path, field, into)
        if not field.isdecimal() or int(field) < 1:
            raise InputError(f"The column of {path} is a number from 1 on, not {field!r}.")

    def record(self, line: str, number: int) -> Record:
        columns = line.split("\t")
        if len(columns) < int(self.field):
            raise InputError(f"{self.path}, line {number}: there is no column {self.field}.")
        return Record(columns[int(self.field) - 1], line)

    def result(self, record: Record, result: str) -> str:
        return f"{record.content}\t" + one_line(result).replace("\t", " ")


class JsonRecords(Records):
    """A JSON object on each line; the result is a new field."""

    def record(self, line: str, number: int) -> Record:
        where = f"{self.path}, line {number}"
        content = parse_json(line, where)
        if not isinstance(content, dict) or not isinstance(content.get(self.field), str):
            raise InputError(f"{where}: expected an object with a text in the field {self.field!r}.")
        if "\\ud" in line.lower():  # JSON can spell halves of characters, and UTF-8 cannot
            try:
                content[self.field].encode()
            except UnicodeEncodeError as error:
                raise InputError(f"{where}: the text has half a character (a lone surrogate).") from error
        return Record(content[self.field], line)

    def result(self, record: Record, result: Any) -> str:
        line: str = record.content  # in which all else keeps its spelling, such as that of numbers
        if place := _value_in(line, self.into):
            return line[: place[0]] + json.dumps(result, ensure_ascii=False) + line[place[1] :]
        added = json.dumps({self.into: result}, ensure_ascii=False)
        return f"{line.rstrip().removesuffix('}').rstrip()}, {added[1:]}"


def _value_in(line: str, name: str) -> tuple[int, int] | None:
    """Return where the value of a field of a JSON object begins and ends; None if it has no such field."""
    decoder, place, end = json.JSONDecoder(), None, line.index("{")
    while key := _KEY.match(line, end + 1):  # after the brace, or a comma
        found, end = decoder.raw_decode(line, key.end() - 1)
        start = _COLON.match(line, end).end()  # type: ignore[union-attr]
        _, end = decoder.raw_decode(line, start)
        place = (start, end) if found == name else place
        comma = _COMMA.match(line, end)
        end = comma.end() - 1 if comma else len(line)
    return place


class ParquetRecords(Records):
    """The rows of a Parquet file; the result is a new column."""

    def __init__(self, path: Path, field: str, into: str):
        super().__init__(path, field, into)
        with extra_needed("parquet", "Parquet needs pyarrow"):
            import pyarrow.parquet as parquet
        try:
            self._file = parquet.ParquetFile(path)
        except Exception as error:
            raise InputError(f"{path} is not a Parquet file: {error}.") from error
        names = self._file.schema_arrow.names
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InputError(f"{path} has several columns {twice[0]!r}.")
        if field not in names:
            raise InputError(f"{path} has no column {field!r}; it has {', '.join(names)}.")

    def count(self) -> int:
        return self._file.metadata.num_rows

    def read(self, start: int, stop: int) -> Iterator[Record]:
        first = 0
        for batch in self._file.iter_batches():
            if first < stop and first + len(batch) > start:
                column = batch.column(batch.schema.names.index(self.field)).to_pylist()
                for row in range(max(0, start - first), min(len(batch), stop - first)):
                    if not isinstance(column[row], str):
                        raise InputError(f"{self.path}, row {first + row + 1}: the column {self.field!r} has no text.")
                    yield Record(column[row], batch.slice(row, 1))
            first += len(batch)

    def fingerprint(self, start: int, stop: int) -> str:
        digest = hashlib.sha256()
        for record in self.read(start, stop):
            digest.update(record.content.serialize())
        return digest.hexdigest()

    def result(self, record: Record, result: str) -> tuple[Any, str]:
        return record.content, result

    @contextlib.contextmanager
    def writer(self, path: Path) -> Iterator[Any]:
        import pyarrow
        import pyarrow.parquet as parquet

        schema = self._file.schema_arrow
        kept = [name for name in schema.names if name != self.into]
        added = pyarrow.schema(
            [*(schema.field(name) for name in kept), pyarrow.field(self.into, pyarrow.string())], schema.metadata
        )
        rows: list[tuple[Any, str]] = []
        with parquet.ParquetWriter(path, added) as file:

            def flush() -> None:
                if rows:
                    table = pyarrow.Table.from_batches([row for row, _ in rows]).select(kept)
                    results = pyarrow.array([result for _, result in rows], pyarrow.string())
                    file.write_table(table.append_column(self.into, results).cast(added))
                    rows.clear()

            def write(row: tuple[Any, str]) -> None:
                rows.append(row)
                if len(rows) >= ROWS_AT_ONCE:
                    flush()

            yield write
            flush()

    def join(self, parts: list[Path], path: Path) -> None:
        import pyarrow.parquet as parquet

        with parquet.ParquetWriter(path, parquet.read_schema(parts[0])) as whole:
            for part in parts:
                for batch in parquet.ParquetFile(part).iter_batches():
                    whole.write_batch(batch)
