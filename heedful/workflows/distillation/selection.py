"""The choice of a student's training text from the translations of its teacher, line by line and with its reasons.

A text of millions of lines stays in its file: memory holds a few numbers for each line.
"""

import shutil
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from heedful.core.errors import InputError
from heedful.core.output import output_file
from heedful.data.doctor.cleaning import REPAIR, REPORT, clean
from heedful.data.doctor.examination import examine
from heedful.data.doctor.rows import Rows
from heedful.data.text_files import read_lines
from heedful.runs.scores.metrics import chrf_counts, mean_f_score
from heedful.workflows.distillation.records import ENDS, TAUGHT, write_pairs

LINES = "lines.tsv"  # what became of each line
COLUMNS = ("file", "line", "outcome", "candidate", "score", "chrf")
KEPT, EMPTY, WORST = "kept", "no translation", "worst"
NONE = float("nan")  # the chrF of a line without a reference


class Choice(NamedTuple):
    """Which translation of a line was chosen.

    Args:
        candidate: its number among the candidates of the teacher, from 1; 0: there is none.
        score: of the candidate, as its teacher gives it.
        chrf: its similarity to the reference; `NONE` without one.
    """

    candidate: int = 0
    score: float = 0.0
    chrf: float = NONE


def choose(content: Mapping[str, Any]) -> Choice:
    """Return the best candidate of a translated line: the closest to its reference, or the first."""
    candidates = [(n, *one) for n, one in enumerate(content["candidates"], start=1) if one[0].strip()]
    if not candidates:
        return Choice()
    best, chrf = 0, NONE
    if reference := content.get("reference"):
        texts = [text for _, text, _ in candidates]
        similar = [mean_f_score(counts) for counts in chrf_counts(texts, [reference] * len(texts))]
        best = int(np.argmax(similar))
        chrf = similar[best]
    number, _, score = candidates[best]
    return Choice(number, score, chrf)


class Selection:
    """What becomes of each line of a translated text.

    Args:
        records: returns the translated lines, from the first one, see `CandidateRecords`.
    """

    def __init__(self, records: Callable[[], Iterable[Mapping[str, Any]]]):
        self._records = records
        candidates, scores, similar = array("I"), array("d"), array("d")
        for choice in map(choose, records()):
            candidates.append(choice.candidate)
            scores.append(choice.score)
            similar.append(choice.chrf)
        self.candidates, self.scores, self.chrf = map(np.asarray, (candidates, scores, similar))
        self._names = [KEPT, EMPTY]
        self._outcomes = np.where(self.candidates > 0, 0, 1).astype(np.uint16)  # positions in `_names`

    def outcomes(self) -> Counter[str]:
        """Return how many lines have each outcome."""
        return Counter({name: int((self._outcomes == n).sum()) for n, name in enumerate(self._names)})

    def drop_worst(self, share: float) -> None:
        """Drop a share of the lines: those least similar to their references, or with the lowest scores.

        Lines with a reference are compared with each other only, and so are those without one. Translations whose
        teacher gives no scores are kept.
        """
        kept, compared = self._outcomes == 0, ~np.isnan(self.chrf)
        for group, values in ((kept & compared, self.chrf), (kept & ~compared & (self.scores != 0), self.scores)):
            [lines] = np.nonzero(group)
            worst = lines[np.argsort(values[lines], kind="stable")[: int(share * len(lines))]]
            self._outcomes[worst] = self._number(WORST)

    def write(
        self, folder: Path, tag: str = "", back: bool = False, report: Callable[[str], Any] = print
    ) -> None:  # fmt: skip
        """Write the training text into a folder: two parallel files, and a table of all lines.

        The doctor removes or repairs what is faulty or repeated.

        Args:
            folder: a new folder.
            tag: begins each source.
            back: whether the teacher's translations are the sources.
            report: called with lines for the user.

        Raises:
            InputError: no line is left.
        """
        drafts = [folder / "draft" / f"{TAUGHT}{end}" for end in ENDS]
        drafts[0].parent.mkdir()
        [kept] = np.nonzero(self._outcomes == 0)
        write_pairs(self._pairs(back), drafts)
        if len(kept):
            text = Rows.of_pairs(drafts)
            clean(text, examine(text), folder)
            for number, action, kinds, *_ in (line.split("\t") for line in read_lines(folder / REPORT)):
                self._outcomes[kept[int(number) - 1]] = self._number(f"{action}: {kinds}")
            (folder / REPORT).unlink()
        shutil.rmtree(drafts[0].parent)
        with (folder / LINES).open("w", encoding="utf-8", newline="\n") as file:
            file.write("\t".join(COLUMNS) + "\n")
            file.writelines(map(self._row, range(len(self._outcomes)), self._records()))
        outcomes = {name: count for name, count in self.outcomes().most_common() if count}
        report(f"{len(self._outcomes):,} lines: " + ", ".join(f"{count:,} {name}" for name, count in outcomes.items()))
        if not any(name == KEPT or name.startswith(REPAIR) for name in outcomes):
            raise InputError("No translation of the teacher can be used.")
        if tag:
            _tag(folder / f"{TAUGHT}{ENDS[0]}", tag)

    def _pairs(self, back: bool) -> Iterator[tuple[str, str]]:
        """Yield the pairs that are kept."""
        for number, content in enumerate(self._records()):
            if self._outcomes[number] == 0:
                pair = content["text"], content["candidates"][self.candidates[number] - 1][0]
                yield pair[::-1] if back else pair

    def _row(self, number: int, content: Mapping[str, Any]) -> str:
        """Return a line as a line of the table of `COLUMNS`."""
        chrf = "" if np.isnan(self.chrf[number]) else f"{self.chrf[number]:.2f}"
        outcome = self._names[self._outcomes[number]]
        return (
            f"{content['file']}\t{content['line']}\t{outcome}\t{self.candidates[number]}\t{self.scores[number]:.4f}"
            f"\t{chrf}\n"
        )

    def _number(self, outcome: str) -> int:
        """Return the position of an outcome in `_names`."""
        if outcome not in self._names:
            self._names.append(outcome)
        return self._names.index(outcome)


def _tag(path, tag):
    with output_file(path) as aside, aside.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{tag} {line}\n" for line in read_lines(path))
