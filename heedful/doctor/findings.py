"""What the doctor can find, what it means, and what is done about it."""

from dataclasses import dataclass, field

import numpy as np

SHOWN = 3  # rows of a kind that are shown
LISTED = 12  # numbers of rows that are printed
WIDTH = 100  # characters of a text that are shown


@dataclass(frozen=True)
class Kind:
    """A kind of trouble: what it means, and what to do."""

    meaning: str
    advice: str


KINDS = {
    "no partner": Kind(
        "the sides differ in length, or a line has not its two columns",
        "training refuses such files; a stretch that does not fit shows where lines were lost",
    ),
    "not UTF-8": Kind("bytes that are no UTF-8", "training refuses such files; convert them, with iconv for example"),
    "empty": Kind("a side is empty", "training leaves such rows out"),
    "mangled": Kind("UTF-8 that was read as Windows-1252", "read the text again with the right encoding"),
    "lost": Kind("characters that a conversion has lost (U+FFFD)", "get the text anew"),
    "unseen": Kind("control characters, invisible ones, or ones for private use", "they only cost vocabulary"),
    "untranslated": Kind("both sides say the same", "the model would learn to copy"),
    "duplicate": Kind("the row came before, but for case and white space", "it counts twice in training"),
    "contradiction": Kind("the text came before, with another label", "decide for one"),
    "overlap": Kind("the row is in the validation or test text too", "scores on that text would be too good"),
    "leak": Kind("what is read is in the validation or test text too, with another answer", "scores may be too good"),
    "script": Kind("in a script that is foreign to this side", "most likely another language"),
    "language": Kind("letters that are unlike the rest of this side", "most likely another language"),
    "misaligned": Kind(
        "words that do not go together elsewhere", "the sides are probably shifted, or it is no translation"
    ),
    "length": Kind("one side is far too long for the other", "something is missing, or two lines were joined"),
}
# What is only worth knowing: such rows are good rows.
KEPT = ("leak", "contradiction")
# What training refuses.
REFUSED = ("no partner", "not UTF-8")


@dataclass(frozen=True)
class Finding:
    """The rows of one kind.

    Args:
        kind: key of `KINDS`.
        rows: their numbers, from 0 (R,).
        notes: of some rows, more words, by number.
        examples: of some rows, their texts, by number.
    """

    kind: str
    rows: np.ndarray
    notes: dict = field(default_factory=dict)
    examples: dict = field(default_factory=dict)

    def as_dict(self):
        """Return the finding for machines; lines count from 1."""
        return {
            "kind": self.kind,
            "meaning": KINDS[self.kind].meaning,
            "advice": KINDS[self.kind].advice,
            "lines": (self.rows + 1).tolist(),
            "notes": {str(row + 1): note for row, note in self.notes.items()},
            "examples": {str(row + 1): list(texts) for row, texts in self.examples.items()},
        }

    def lines(self, total):
        """Return the finding as lines for the user; `total` is the number of rows of the text."""
        kind = KINDS[self.kind]
        count = len(self.rows)
        rows = [f"{self.kind}: {count:,} rows ({count / total:.2%}): {kind.meaning}; {kind.advice}"]
        rows.append(f"    lines {_ranges(self.rows + 1)}")
        for row, texts in self.examples.items():
            note = f" ({self.notes[row]})" if row in self.notes else ""
            rows.append(f"    {row + 1}{note}: " + "  |  ".join(map(_shown, texts)))
        return rows


def runs(rows):
    """Return where each run of consecutive numbers begins and ends: (first, last) of sorted numbers (R,)."""
    breaks = np.flatnonzero(np.diff(rows) > 1)
    starts, ends = np.append(0, breaks + 1), np.append(breaks, -1)
    return list(zip(rows[starts].tolist(), rows[ends].tolist(), strict=True)) if len(rows) else []


def _shown(text):
    text = "(nothing)" if text is None else text
    short = text if len(text) <= WIDTH else f"{text[:WIDTH]}..."
    return short.encode("utf-8", "backslashreplace").decode() if short.isprintable() else ascii(short)[1:-1]


def _ranges(numbers):
    """Return numbers as text, runs of them as ranges, no more than `LISTED` of them."""
    found = runs(numbers)
    parts = [f"{first}" if first == last else f"{first}-{last}" for first, last in found[:LISTED]]
    return ", ".join(parts) + (f" and {len(found) - LISTED:,} more places" if len(found) > LISTED else "")
