"""The choice of a student's training text from the translations of its teacher, line by line and with its reasons."""

import dataclasses
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from heedful.core.errors import InputError
from heedful.data.doctor.cleaning import REPAIR, REPORT, clean
from heedful.data.doctor.examination import examine
from heedful.data.doctor.rows import Rows
from heedful.data.text_files import read_lines
from heedful.runs.scores.metrics import chrf_counts, mean_f_score
from heedful.workflows.distillation.records import ENDS, TAUGHT, write_pairs

LINES = "lines.tsv"  # what became of each line
COLUMNS = ("file", "line", "outcome", "candidate", "score", "chrf")
KEPT, EMPTY, WORST = "kept", "no translation", "worst"


@dataclasses.dataclass(slots=True)
class Choice:
    """What became of a line.

    Args:
        file, line: where it came from.
        source: the text.
        target: its translation.
        candidate: number of the chosen one among the candidates of the teacher, from 1; 0: there is none.
        score: of the candidate, as its teacher gives it.
        chrf: its similarity to the reference, if there is one.
        outcome: `KEPT`, or why it was dropped.
    """

    file: str
    line: int
    source: str
    target: str = ""
    candidate: int = 0
    score: float = 0.0
    chrf: float | None = None
    outcome: str = KEPT

    def row(self) -> str:
        """Return it as a line of the table of `COLUMNS`."""
        chrf = "" if self.chrf is None else f"{self.chrf:.2f}"
        return f"{self.file}\t{self.line}\t{self.outcome}\t{self.candidate}\t{self.score:.4f}\t{chrf}\n"


def choose(content: Mapping[str, Any]) -> Choice:
    """Return the best candidate of a translated line: the closest to its reference, or the first."""
    choice = Choice(content["file"], content["line"], content["text"])
    candidates = [(n, *one) for n, one in enumerate(content["candidates"], start=1) if one[0].strip()]
    if not candidates:
        choice.outcome = EMPTY
        return choice
    best = 0
    if reference := content.get("reference"):
        texts = [text for _, text, _ in candidates]
        similar = [mean_f_score(counts) for counts in chrf_counts(texts, [reference] * len(texts))]
        best = int(np.argmax(similar))
        choice.chrf = similar[best]
    choice.candidate, choice.target, choice.score = candidates[best]
    return choice


def drop_worst(choices: list[Choice], share: float) -> None:
    """Drop a share of the lines: those least similar to their references, or with the lowest scores.

    Lines with a reference are compared with each other only, and so are those without one. Translations whose teacher
    gives no scores are kept.
    """
    kept = [choice for choice in choices if choice.outcome == KEPT]
    for group, value in (
        ([choice for choice in kept if choice.chrf is not None], lambda choice: choice.chrf),
        ([choice for choice in kept if choice.chrf is None and choice.score], lambda choice: choice.score),
    ):
        for choice in sorted(group, key=value)[: int(share * len(group))]:
            choice.outcome = WORST


def write_taught(
    choices: list[Choice], folder: Path, tag: str = "", back: bool = False, report: Callable[[str], Any] = print
) -> None:
    """Write the training text into a folder: two parallel files, and a table of all lines.

    The doctor removes or repairs what is faulty or repeated.

    Args:
        choices: of all lines.
        folder: a new folder.
        tag: begins each source.
        back: whether the teacher's translations are the sources.
        report: called with lines for the user.

    Raises:
        InputError: no line is left.
    """
    kept = [choice for choice in choices if choice.outcome == KEPT]
    drafts = [folder / "draft" / f"{TAUGHT}{end}" for end in ENDS]
    drafts[0].parent.mkdir()
    pairs = ((choice.target, choice.source) if back else (choice.source, choice.target) for choice in kept)
    write_pairs(pairs, drafts)
    if kept:
        text = Rows.of_pairs(drafts)
        clean(text, examine(text), folder)
        for number, action, kinds, *_ in (line.split("\t") for line in read_lines(folder / REPORT)):
            kept[int(number) - 1].outcome = f"{action}: {kinds}"
        (folder / REPORT).unlink()
    shutil.rmtree(drafts[0].parent)
    with (folder / LINES).open("w", encoding="utf-8", newline="\n") as file:
        file.write("\t".join(COLUMNS) + "\n")
        file.writelines(choice.row() for choice in choices)
    outcomes = Counter(choice.outcome for choice in choices)
    report(f"{len(choices):,} lines: " + ", ".join(f"{count:,} {name}" for name, count in outcomes.most_common()))
    if not any(name == KEPT or name.startswith(REPAIR) for name in outcomes):
        raise InputError("No translation of the teacher can be used.")
    if tag:
        _tag(folder / f"{TAUGHT}{ENDS[0]}", tag)


def _tag(path, tag):
    lines = list(read_lines(path))
    path.write_text("".join(f"{tag} {line}\n" for line in lines), encoding="utf-8", newline="\n")
