"""The rows of a text, however broken it is, and a sample of them."""

import itertools
from collections.abc import Iterator

from heedful.data.corpus import raw_lines, resolve_all

PARTS = ("train", "valid", "test")
CHUNK = 4000  # rows looked at together
SAMPLE = 40_000  # rows from which the rest is judged


class Rows:
    """A text in files as rows of one column or two, which can be read again and again.

    What is not UTF-8 is kept as Python's `surrogateescape` keeps it; a column that a row lacks is None.

    Args:
        groups: tuples of files: one file for each column, or one that holds all columns.
        columns: their names: ("source", "target"), ("label", "text") or ("text",).
        separator: what stands between two columns in one file.
        whole: whether a row is a text of its own, so that empty and repeated ones are worth a word.
        most: read no more rows than this; None: all.
    """

    def __init__(self, groups, columns, separator=None, whole=True, most=None):
        self.groups, self.columns, self.separator, self.whole, self.most = groups, columns, separator, whole, most
        self.name = " + ".join(str(path) for group in groups for path in group)

    def __iter__(self) -> Iterator[tuple[str | None, ...]]:
        return itertools.islice(itertools.chain.from_iterable(map(self.read, self.groups)), self.most)

    def read(self, group):
        """Return an iterator of the rows in one group of files."""
        if len(group) == len(self.columns):
            return itertools.zip_longest(*map(_lines, group))
        return (_split(line, self.separator) for line in _lines(group[0]))

    @classmethod
    def of_pairs(cls, paths, origin=""):
        """Open two parallel files, or one with a tab between source and target; `InputError` names missing files."""
        return cls([tuple(resolve_all(paths, origin))], ("source", "target"), "\t")

    @classmethod
    def of_labelled(cls, paths, origin=""):
        """Open files with a label, a tab or a blank, and a text on each line."""
        found = resolve_all(paths, origin)
        separator = "\t" if "\t" in next(_lines(found[0]), "") else " "
        return cls([(path,) for path in found], ("label", "text"), separator)

    @classmethod
    def of_lines(cls, paths, origin="", whole=True):
        """Open files with a text on each line, or (not `whole`) with texts of many lines."""
        return cls([(path,) for path in resolve_all(paths, origin)], ("text",), whole=whole)

    @classmethod
    def of_config(cls, data, task):
        """Open the texts of a run as its task reads them: `Rows` by part ("train", "valid", "test"), if it has it."""

        def open_part(files):
            if task == "translate":
                return cls.of_pairs(files, data.origin)
            if task == "classify" or data.documents == "labelled":
                return cls.of_labelled(files, data.origin)
            return cls.of_lines(files, data.origin, whole=data.documents == "lines")

        return {part: open_part(files) for part in PARTS if (files := getattr(data, part))}

    def first(self, most):
        """Return the same text, but no more than its first rows."""
        return type(self)(self.groups, self.columns, self.separator, self.whole, most)

    @property
    def texts(self):
        """The numbers of the columns that are text."""
        return [number for number, column in enumerate(self.columns) if column != "label"]

    def chunks(self):
        """Yield (number of the first row, list of rows) through the whole text."""
        rows, first = iter(self), 0
        while chunk := list(itertools.islice(rows, CHUNK)):
            yield first, chunk
            first += len(chunk)

    def sample(self):
        """Return (every k-th row, k, number of rows), for the smallest power of two k that leaves `SAMPLE` at most."""
        step, chosen, number = 1, [], -1
        for number, row in enumerate(self):
            if number % step:
                continue
            chosen.append(row)
            if len(chosen) > SAMPLE:
                chosen, step = chosen[::2], 2 * step
        return chosen, step, number + 1


def _lines(path):
    for raw in raw_lines(path):
        yield raw.decode("utf-8", "surrogateescape")


def _split(line, separator):
    first, found, rest = line.partition(separator)
    return (first, rest) if found and (separator != "\t" or "\t" not in rest) else (line, None)
