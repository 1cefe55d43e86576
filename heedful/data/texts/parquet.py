"""Parquet files of a data set, written as the plain text files that trainings read."""

import json
from collections.abc import Sequence
from pathlib import Path

from heedful.core.errors import InputError, extra_needed

LABELS, TEXTS = ("label", "labels"), ("text", "sentence", "content", "question")  # usual names of columns


def write_text(tables: Sequence[Path], folder: Path, part: str) -> tuple[str, tuple[str, ...]]:
    """Write the rows of Parquet files as text; return the layout, and the names of the files.

    A column `translation` of two languages becomes PART.SOURCE and PART.TARGET; a label and a text become PART.tsv; a
    text alone becomes PART.txt, with a blank line after each document if one has several lines. Rows in which
    something is missing or blank are left out. Without any other row there are no files.

    Raises:
        InputError: pyarrow is not installed, or the columns are none of these.
    """
    with extra_needed("parquet", "This text consists of Parquet files"):
        import pyarrow.parquet as parquet
    columns = parquet.read_schema(tables[0]).names
    text = next((name for name in TEXTS if name in columns), None)
    label = next((name for name in LABELS if name in columns), None)

    def rows():
        for path in tables:
            for batch in parquet.ParquetFile(path).iter_batches():
                yield from batch.to_pylist()

    if "translation" in columns:
        first = parquet.ParquetFile(tables[0]).schema_arrow.field("translation").type
        sides = [first.field(index).name for index in range(first.num_fields)]
        if not all(side.replace("_", "").isalnum() for side in sides):  # they become parts of file names
            raise InputError(f"The languages {', '.join(map(repr, sides))} are not names of languages.")
        return "pairs", _write_pairs(rows(), sides, folder, part)
    if text and label:
        names = _label_names(parquet.read_schema(tables[0]), label)
        lines = (
            f"{_named(row[label], names)}\t{one_line(row[text])}"
            for row in rows()
            if not _is_blank(row[text]) and _is_label(row[label], names)
        )
        return "labelled", _write(folder / f"{part}.tsv", lines)
    if text:

        def documents():
            return (str(row[text]).strip("\n") for row in rows() if not _is_blank(row[text]))

        end = "\n" if any("\n" in one for one in documents()) else ""
        return "documents", _write(folder / f"{part}.txt", (f"{one}{end}" for one in documents()))
    raise InputError(f"The columns {', '.join(columns)} are neither a translation, nor a text, nor a label and a text.")


def one_line(text: str) -> str:
    """Return a text on one line without tabs, as a table needs it: white space becomes single spaces."""
    return " ".join(str(text).split())


def _is_blank(text):
    return text is None or not str(text).strip()


def _write_pairs(rows, sides, folder, part):
    names = tuple(f"{part}.{side}" for side in sides)
    with (
        (folder / names[0]).open("w", encoding="utf-8") as source,
        (folder / names[1]).open("w", encoding="utf-8") as to,
    ):
        for row in rows:
            if row["translation"] is None or any(_is_blank(row["translation"][side]) for side in sides):
                continue
            for file, side in ((source, sides[0]), (to, sides[1])):
                file.write(one_line(row["translation"][side]) + "\n")
    return _unless_empty(folder, names)


def _write(path, lines):
    """Write lines to a file; return the names of the files: none if there are no lines."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    return _unless_empty(path.parent, (path.name,))


def _unless_empty(folder, names):
    """Return the names of the files of a part; remove them if they are empty, and return none."""
    if (folder / names[0]).stat().st_size:
        return names
    for name in names:
        (folder / name).unlink()
    return ()


def _label_names(schema, label):
    """Return the names of the classes that the library `datasets` stores with a table; None if there are none."""
    stored = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    return stored.get("info", {}).get("features", {}).get(label, {}).get("names")


def _is_label(value, names):
    """Return whether a value is a label; test texts without labels have -1 where classes have names."""
    return value is not None and not (names and isinstance(value, int) and value < 0)


def _named(value, names):
    known = names and isinstance(value, int) and 0 <= value < len(names)
    return one_line(names[value] if known else value)
