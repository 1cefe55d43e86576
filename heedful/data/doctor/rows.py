"""Reading the rows of a text, even a damaged one, and sampling them."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from heedful.config import PARTS, DataConfig
from heedful.core.errors import InputError, counted
from heedful.data.bilingual_files import is_bilingual, read_bilingual
from heedful.data.corpus import resolve_all, resolve_pairs, split_pair
from heedful.data.labels import separator_of, split_labelled
from heedful.data.text_files import first_lines, raw_lines

CHUNK = 4000  # rows processed at a time
CHARACTERS = 2_000_000  # ... or fewer rows, if they are long
LONGEST = 400  # characters of a column that are judged
LOOKED_AT = 100  # first lines searched for a tab, to see whether a file has two columns
PAIRS = ("source", "target")
SAMPLE = 40_000  # maximum number of rows in the sample


def is_complete(row: Sequence[str | None]) -> bool:
    """Return whether a row has all its columns, and more than white space in each."""
    return all(part and part.strip() for part in row)


class Rows:
    """A text in files, as rows of one or two columns that can be read repeatedly.

    Bytes that are not UTF-8 are decoded with `surrogateescape`; a missing column is None.

    Args:
        groups: tuples of files: one file for each column, or one that holds all columns.
        columns: their names: ("source", "target"), ("label", "text") or ("text",).
        whole: whether each row is a text of its own, so that empty and repeated rows are reported.
        max_rows: maximum number of rows to read; None reads all.
    """

    def __init__(
        self,
        groups: Sequence[tuple[Path, ...]],
        columns: tuple[str, ...],
        whole: bool = True,
        max_rows: int | None = None,
    ):
        self.groups, self.columns, self.whole, self.max_rows = groups, columns, whole, max_rows
        self.name = " + ".join(str(path) for group in groups for path in group)

    def __iter__(self) -> Iterator[tuple[str | None, ...]]:
        return itertools.islice(itertools.chain.from_iterable(map(self.read, self.groups)), self.max_rows)

    def read(self, group: tuple[Path, ...]) -> Iterator[Any]:
        """Return an iterator of the rows in one group of files."""
        if self._is_bilingual(group):
            return read_bilingual(group[0])
        if len(group) == len(self.columns):
            return itertools.zip_longest(*map(_lines, group))
        if "label" in self.columns:
            separator = self.separator_of(group)
            return (split_labelled(line, separator) or (line, None) for line in _lines(group[0]))
        return (split_pair(line) or (line, None) for line in _lines(group[0]))

    def _is_bilingual(self, group: tuple[Path, ...]) -> bool:
        return self.columns == PAIRS and len(group) == 1 and is_bilingual(group[0])

    @property
    def can_be_written(self) -> bool:
        """Whether the files hold nothing but rows, so that changed rows can be written to copies of them."""
        return not any(map(self._is_bilingual, self.groups))

    def separator_of(self, group: tuple[Path, ...]) -> str:
        """Return the separator of the columns in a file."""
        return separator_of(next(_lines(group[0]), "")) if "label" in self.columns else "\t"

    @classmethod
    def of_pairs(cls, paths: Sequence[str | Path], origin: str = "") -> Self:
        """Open two parallel files, or one tab-separated file.

        Raises:
            InputError: files are missing (the message names them), there are more than two, or a single file has no tab
                in its first lines.
        """
        groups = resolve_pairs(paths, origin)
        for first, *other in groups:
            beginning = [] if other or is_bilingual(first) else first_lines(first, LOOKED_AT)
            if beginning and not any("\t" in line for line in beginning):
                raise InputError(
                    f"{first} has no tab in its first {counted(len(beginning), 'line')}: a parallel text is two files, "
                    "or one .tsv."
                )
        return cls(groups, PAIRS)

    @classmethod
    def of_labelled(cls, paths: Sequence[str | Path], origin: str = "") -> Self:
        """Open files with a label and a text on each line, separated by a tab or a space."""
        return cls([(path,) for path in resolve_all(paths, origin)], ("label", "text"))

    @classmethod
    def of_lines(cls, paths: Sequence[str | Path], origin: str = "", whole: bool = True) -> Self:
        """Open files with one text per line or, if not `whole`, with texts of many lines."""
        return cls([(path,) for path in resolve_all(paths, origin)], ("text",), whole=whole)

    @classmethod
    def of_config(cls, data: DataConfig, layout: str) -> dict[str, Self]:
        """Open the texts that a `DataConfig` names; return `Rows` by part ("train", "valid", "test").

        `layout` is one of `pairs`, `labelled`, `lines` (one text per line) and `documents` (many lines per text).
        """

        def open_part(files):
            if layout == "pairs":
                return cls.of_pairs(files, data.origin)
            if layout == "labelled":
                return cls.of_labelled(files, data.origin)
            return cls.of_lines(files, data.origin, whole=layout == "lines")

        return {part: open_part(files) for part in PARTS if (files := getattr(data, part))}

    def first(self, max_rows: int) -> Self:
        """Return the same text, limited to its first `max_rows` rows."""
        return type(self)(self.groups, self.columns, self.whole, max_rows)

    @property
    def texts(self) -> list[int]:
        """Indices of the text columns."""
        return [number for number, column in enumerate(self.columns) if column != "label"]

    def chunks(self) -> Iterator[tuple[int, list[Any]]]:
        """Yield (number of the first row, list of rows) through the whole text."""
        first, chunk, size = 0, [], 0
        for row in self:
            chunk.append(row)
            size += sum(map(len, filter(None, row)))
            if len(chunk) == CHUNK or size > CHARACTERS:
                yield first, chunk
                first, chunk, size = first + len(chunk), [], 0
        if chunk:
            yield first, chunk

    def sample(self) -> tuple[list[Any], int, int]:
        """Return (the beginning of every k-th row, k, number of rows).

        k is the smallest power of 2 that yields at most `SAMPLE` rows.
        """
        step, chosen, number = 1, [], -1
        for number, row in enumerate(self):
            if number % step:
                continue
            chosen.append(tuple(part and part[:LONGEST] for part in row))
            if len(chosen) > SAMPLE:
                chosen, step = chosen[::2], 2 * step
        return chosen, step, number + 1


def _lines(path):
    for raw in raw_lines(path):
        yield raw.decode("utf-8", "surrogateescape")
