"""The kinds of faults that the doctor can find, their meaning, and advice on them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from heedful.core.errors import counted

SHOWN = 3  # example rows shown for each kind
LISTED = 12  # maximum ranges of rows printed
WIDTH = 100  # characters of a text that are shown


@dataclass(frozen=True)
class Kind:
    """A kind of fault: what it means, and what to do about it."""

    meaning: str
    advice: str


FAULTS = {
    "no partner": Kind(
        "the sides differ in length, or a line lacks a column",
        "training refuses such files; misaligned rows show where lines were lost",
    ),
    "not UTF-8": Kind("bytes that are not UTF-8", "training refuses such files; convert them, with iconv for example"),
    "empty": Kind("a side is empty", "training leaves such rows out"),
    "mangled": Kind("UTF-8 that was read as Windows-1252", "read the text again with the right encoding"),
    "lost": Kind("characters that a conversion has lost (U+FFFD)", "get the original text again"),
    "unseen": Kind("control, invisible or private-use characters", "they only take up vocabulary"),
    "header": Kind("the names of the columns", "training refuses a table that begins with it"),
    "markup": Kind("HTML or XML tags or entities", "the model would learn to write them; extract the text first"),
    "forms": Kind(
        "decomposed letters, or double, no-break or trailing spaces",
        "tokenizer.normalize = 'nfc', the default, reads them as their usual form",
    ),
    "untranslated": Kind("both sides are the same", "the model would learn to copy"),
    "duplicate": Kind("the row repeats an earlier one, ignoring case and white space", "it counts twice in training"),
    "rare label": Kind("a label that occurs once", "one text does not teach a class; is the first word a label?"),
    "contradiction": Kind("the text occurs earlier with another label", "choose one label"),
    "overlap": Kind("the row is also in the validation or test text", "scores on that text would be too high"),
    "leak": Kind("the input is also in the validation or test text, with another output", "scores may be too high"),
    "script": Kind("a script that is foreign to this side", "most likely another language"),
    "language": Kind("letter patterns unlike the rest of this side", "most likely another language"),
    "misaligned": Kind(
        "words that do not occur together elsewhere", "the sides are probably shifted, or not translations"
    ),
    "length": Kind("one side is far too long for the other", "something is missing, or two lines were joined"),
}
# Only reported: cleaning keeps such rows.
KEPT = ("leak", "contradiction", "rare label", "markup")
# Training refuses text with such rows.
REFUSED = ("no partner", "not UTF-8")


@dataclass(frozen=True)
class Finding:
    """Rows with one fault.

    Args:
        kind: key of `FAULTS`.
        rows: their indices (R,).
        notes: remarks on some rows, by index.
        examples: the texts of some rows, by index.
    """

    kind: str
    rows: np.ndarray
    notes: dict = field(default_factory=dict)
    examples: dict = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as a dictionary, for JSON output; line numbers start at 1."""
        return {
            "kind": self.kind,
            "meaning": FAULTS[self.kind].meaning,
            "advice": FAULTS[self.kind].advice,
            "lines": (self.rows + 1).tolist(),
            "notes": {str(row + 1): note for row, note in self.notes.items()},
            "examples": {str(row + 1): list(texts) for row, texts in self.examples.items()},
        }

    def lines(self, total: int) -> list[str]:
        """Return the finding as lines of a report; `total` is the number of rows in the text."""
        kind = FAULTS[self.kind]
        count = len(self.rows)
        rows = [f"{self.kind}: {counted(count, 'row')} ({count / total:.2%}): {kind.meaning}; {kind.advice}"]
        rows.append(f"    lines {_ranges(self.rows + 1)}")
        for row, texts in self.examples.items():
            note = f" ({self.notes[row]})" if row in self.notes else ""
            rows.append(f"    {row + 1}{note}: " + "  |  ".join(map(_shown, texts)))
        return rows


def runs(rows: np.ndarray) -> list[tuple[int, int]]:
    """Return (first, last) of each consecutive stretch of sorted numbers (R,)."""
    breaks = np.flatnonzero(np.diff(rows) > 1)
    starts, ends = np.append(0, breaks + 1), np.append(breaks, -1)
    return list(zip(rows[starts].tolist(), rows[ends].tolist(), strict=True)) if len(rows) else []


def _shown(text):
    text = "(nothing)" if text is None else text
    short = text if len(text) <= WIDTH else f"{text[:WIDTH]}..."
    return short.encode("utf-8", "backslashreplace").decode() if short.isprintable() else ascii(short)[1:-1]


def _ranges(numbers):
    """Return sorted numbers as text, in at most `LISTED` ranges."""
    ranges = runs(numbers)
    parts = [f"{first}" if first == last else f"{first}-{last}" for first, last in ranges[:LISTED]]
    return ", ".join(parts) + (f" and {len(ranges) - LISTED:,} more places" if len(ranges) > LISTED else "")
