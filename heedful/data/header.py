"""Header rows of tables: the names of columns, which are not text to train on."""

from collections.abc import Sequence
from pathlib import Path

from heedful.core.errors import InputError

# Names that people give to columns of text and labels, in lower case.
COLUMN_NAMES = frozenset(
    "category class content input intent label labels output query question reference sentence sentences sentiment "
    "source src tag tags target text texts tgt translation trg utterance "
    "arabic chinese czech dutch english finnish french german greek hindi italian japanese korean polish portuguese "
    "russian spanish swedish turkish ukrainian".split()
)


def is_header(columns: Sequence[str | None]) -> bool:
    """Return whether a row of at least two columns names them.

    >>> is_header(("label", "text")), is_header(("English", "Portuguese")), is_header(("good", "text"))
    (True, True, False)
    """
    return len(columns) > 1 and all(column and column.strip().lower() in COLUMN_NAMES for column in columns)


def refuse_header(path: str | Path, line: str, columns: Sequence[str | None]) -> None:
    """Raise `InputError` if the first line of a table, given whole and as columns, names the columns."""
    if is_header(columns):
        raise InputError(f"{path}, line 1 names the columns ({line!r:.60}): remove it, for example with tail -n +2.")
