"""The examination of a text: learn what is usual from a sample, then find unusual rows in one pass."""

import dataclasses
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from heedful.core.errors import counted
from heedful.data.doctor.alignment import stretches
from heedful.data.doctor.characters import CHARACTERS, count_kinds, fix_mojibake, has_markup
from heedful.data.doctor.findings import FAULTS, SHOWN, Finding, runs
from heedful.data.doctor.repeats import normal_form
from heedful.data.doctor.rows import Rows, is_complete
from heedful.data.doctor.seen import Seen
from heedful.data.doctor.usual import Usual
from heedful.data.doctor.vocabulary import fits
from heedful.data.header import is_header
from heedful.data.normalization import normalized

LOOKED_AT = 200  # most rows of a stretch used to estimate its shift
WORDS = 3  # a row of fewer words, such as a name, may be the same on both sides


@dataclass
class Examination:
    """The results of examining a text.

    Args:
        name: name of the text.
        rows: number of rows read.
        scripts: scripts of each side.
        findings: `Finding`s.
        vocabularies: `Fit`s, if the vocabularies are known.
        seconds: duration of the examination.
    """

    name: str
    rows: int = 0
    scripts: dict = field(default_factory=dict)
    findings: list = field(default_factory=list)
    vocabularies: list = field(default_factory=list)
    seconds: float = 0.0

    def rows_of(self, kind: str) -> np.ndarray:
        """Return the indices of the rows of a kind (R,)."""
        return next((finding.rows for finding in self.findings if finding.kind == kind), np.zeros(0, np.int64))

    def as_dict(self) -> dict[str, Any]:
        """Return the results as a dictionary, for JSON output."""
        return {
            "text": self.name,
            "rows": self.rows,
            "scripts": self.scripts,
            "findings": [finding.as_dict() for finding in self.findings],
            "vocabularies": [dataclasses.asdict(fit) | {"fits": fit.fits} for fit in self.vocabularies],
            "seconds": round(self.seconds, 2),
        }

    def lines(self) -> list[str]:
        """Return the results as lines of a report."""
        scripts = "; ".join(f"{side} in {' and '.join(names) or 'no script'}" for side, names in self.scripts.items())
        head = f"{self.name}: {counted(self.rows, 'row')}, {scripts}, examined in {self.seconds:.1f} s"
        reported = [line for finding in self.findings for line in finding.lines(self.rows)]
        nothing = "nothing found" if self.rows else "nothing to train on"
        return [head, *(reported or [nothing]), *map(str, self.vocabularies)]

    def summary(self) -> str:
        """Return the number of findings of each kind as one line."""
        counts = ", ".join(f"{finding.kind} {len(finding.rows):,}" for finding in self.findings)
        unfit = "".join(f"; {fit}" for fit in self.vocabularies if not fit.fits)
        return f"{counted(self.rows, 'row')} examined in {self.seconds:.1f} s: {counts or 'nothing found'}{unfit}"


def examine(
    text: Rows,
    others: Mapping[str, Rows] | None = None,
    tokenizers: Sequence[Any] = (),
    progress: Callable[[int, int], Any] | None = None,
) -> Examination:
    """Examine a text and return an `Examination`.

    Args:
        text: `Rows`.
        others: by name, `Rows` of texts that it must not overlap with, such as validation and test text.
        tokenizers: one for each side, to check whether their vocabularies fit; may be empty.
        progress: called with the number of rows read and the total.
    """
    began, others = time.monotonic(), others or {}
    sample, step, total = text.sample()
    usual = Usual(text.columns, text.texts, list(filter(is_complete, sample)))
    with Seen(text, others if text.whole else {}) as seen:
        rows_of, evidence = _scan(text, usual, seen, step, lambda read: progress and progress(read, total))
        repeats = seen.repeats()
        rows_of["rare label"] = seen.rare_labels()
    rows_of |= {kind: pairs[:, 0] for kind, pairs in repeats.items()}
    explained = np.concatenate([rows_of[kind] for kind in ("untranslated", "script", "language")])
    if usual.knows_pairs:
        evidence[explained] = 0  # rows with another explanation are not evidence of misalignment
        rows_of["misaligned"] = np.flatnonzero(stretches(evidence))
    rows_of["language"] = np.setdiff1d(rows_of["language"], np.union1d(rows_of["script"], rows_of["untranslated"]))
    rows_of["length"] = np.setdiff1d(rows_of["length"], np.union1d(explained, rows_of["misaligned"]))
    findings = _tell(text, usual, rows_of, repeats, seen)
    vocabularies = fits({"train": text, **others}, tokenizers) if tokenizers else []
    return Examination(text.name, total, usual.scripts, findings, vocabularies, time.monotonic() - began)


def _scan(text, usual, seen, step, progress):
    """Read and judge a text once, and register its rows in `seen`.

    Args:
        text: `Rows`.
        usual: its `Usual`.
        seen: `Seen`.
        step: the sample that `usual` was learned from contains every `step`-th row.
        progress: called with the number of rows read.

    Returns:
        the rows of each kind that can be found row by row, and the evidence against each row being a translation (N,),
        empty if `usual` has no word associations.
    """
    rows_of = {kind: [np.zeros(0, np.int64)] for kind in FAULTS}
    against = [np.zeros(0, np.float32)]
    for first, rows in text.chunks():
        numbers = np.arange(first, first + len(rows))
        whole = np.array([is_complete(row) for row in rows])
        lacking = np.array([None in row for row in rows])
        good, good_numbers = list(filter(is_complete, rows)), numbers[whole]
        kinds, evidence = usual.judge(good, (good_numbers % step == 0).astype(float))
        for kind, which in (kinds | _alone(good, text.texts)).items():
            if kind != "forms" or text.whole:  # running text may be indented
                rows_of[kind].append(good_numbers[which])
        rows_of["no partner"].append(numbers[lacking])
        if text.whole:
            rows_of["empty"].append(numbers[~whole & ~lacking])
            seen.add(good_numbers.tolist(), good)
        if usual.knows_pairs:
            against.append(np.zeros(len(rows), np.float32))
            against[-1][whole] = evidence
        progress(first + len(rows))
    return {kind: np.unique(np.concatenate(parts)) for kind, parts in rows_of.items()}, np.concatenate(against)


def _tell(text, usual, rows_of, repeats, seen):
    """Return the findings, with example rows of each kind and notes on them.

    Args:
        text: `Rows`.
        usual: its `Usual`.
        rows_of: the rows of each kind.
        repeats: (row, earlier row) of each kind of repetition (R, 2).
        seen: `Seen`, to describe where a row is.
    """
    shown = {kind: [first for first, _ in runs(rows)[:SHOWN]] for kind, rows in rows_of.items()}
    shifted = [range(first, min(last + 1, first + LOOKED_AT)) for first, last in runs(rows_of["misaligned"])[:SHOWN]]
    texts = _texts(text, {row for rows in (*shown.values(), *shifted) for row in rows})
    notes: dict[str, dict[Any, Any]] = {kind: {} for kind in rows_of}
    for kind, pairs in repeats.items():
        for row, earlier in pairs[np.isin(pairs[:, 0], shown[kind])].tolist():
            notes[kind][row] = f"as {seen.place(earlier)}"
    for stretch in shifted:
        late = usual.lateness([texts[row] for row in stretch if all(texts[row])])
        if late:
            count = counted(abs(late), "row")
            notes["misaligned"][stretch[0]] = f"from here the target is {count} {'late' if late > 0 else 'early'}"
    return [
        Finding(kind, rows, notes[kind], {row: texts[row] for row in shown[kind]})
        for kind, rows in rows_of.items()
        if len(rows)
    ]


def _alone(rows, texts):
    """Return the faults that single rows show: for each kind, which rows are of it (N,)."""
    counts = np.zeros((len(rows), len(CHARACTERS)), int)
    mangled, unusual, marked = np.zeros((3, len(rows)), bool)
    for column in texts:
        lines = [row[column] for row in rows]
        unusual |= np.array([normalized(line, "nfc") != line.replace("\t", " ") for line in lines], bool)
        counts += count_kinds(lines)
        mangled |= np.array([fix_mojibake(line) != line for line in lines], bool)
        marked |= np.array(list(map(has_markup, lines)), bool)
    of = {name: counts[:, number] > 0 for number, name in enumerate(CHARACTERS)}
    rows_of = {
        "not UTF-8": of["broken"],
        "lost": of["lost"],
        "unseen": of["control"] | of["invisible"],
        "mangled": mangled,
        "header": np.array(list(map(is_header, rows)), bool),
        "markup": marked,
        "forms": unusual & (counts[:, CHARACTERS.index("broken")] == 0),
    }
    if len(texts) == 2:
        source, target = texts
        rows_of["untranslated"] = np.array(
            [
                len(row[source].split()) >= WORDS and normal_form(row[source]) == normal_form(row[target])
                for row in rows
            ],
            bool,
        )
    return rows_of


def _texts(text, wanted):
    """Return rows of a text by their numbers."""
    row_of, rows, index = {}, iter(text), 0
    for number in sorted(wanted):
        row_of[number] = next(itertools.islice(rows, number - index, None))
        index = number + 1
    return row_of
