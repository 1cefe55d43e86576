"""Write the page of one run or several, or show it in a notebook."""

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heedful.core.output import require_no_folder, write_output
from heedful.core.progress import note
from heedful.data.glossary import Glossary
from heedful.inspection.page.contents import Contents, contents_of
from heedful.inspection.page.document import build_document
from heedful.inspection.page.packing import WeightType
from heedful.runs.run import Run


def write_page(
    runs: Sequence[Run], out: str | Path, kind: WeightType | None = None, examples: Sequence[str] = (),
    checkpoints: int | None = None, glossary: Glossary | None = None,
) -> str:  # fmt: skip
    """Write one HTML file that looks into runs; return a line that says what is in it.

    Args:
        runs: one `Run`, or several to compare.
        out: the file.
        kind, examples, checkpoints, glossary: see `contents_of`.

    Raises:
        InputError: a run has no page, no weights, or damaged ones; or `out` is a folder.
    """
    require_no_folder(out)
    contents = []
    for run in runs:
        note(f"packing {run.path}, and comparing it with its rounded weights ...")
        contents.append(contents_of(run, kind, examples, checkpoints, glossary))
    text = _document(contents)
    write_output(out, text.encode(errors="backslashreplace"))
    return f"{out}: {len(text.encode()) / 1e6:.1f} MB; {'; '.join(map(_summary, contents))}"


@dataclass(frozen=True)
class NotebookPage:
    """A page that a notebook shows when it is the last value of a cell."""

    document: str = field(repr=False)  # a notebook stores the representation too
    height: int
    width: int | None = None

    def _repr_html_(self) -> str:
        source = html.escape(self.document, quote=True)
        width = "100%" if self.width is None else f"{self.width}px"
        return f'<iframe srcdoc="{source}" style="width: {width}; height: {self.height}px; border: 0"></iframe>'


def show(
    *runs: Run | str | Path, height: int = 900, width: int | None = None, checkpoints: int | None = 0, **options: Any
) -> NotebookPage:
    """Show the page of one run or several in a notebook: why it writes each word, attention, beam search, training.

    Args:
        runs: a `Run` or the path of a run folder; several are compared.
        height, width: in pixels; None: as wide as the notebook.
        checkpoints: number of earlier checkpoints, which make the notebook larger; None: as many as fit in 16 MB.
        options: `kind`, `examples` and `glossary`, see `contents_of`.

    Raises:
        InputError: a run has no page, no weights, or damaged ones.
    """
    opened = [run if isinstance(run, Run) else Run.open(run) for run in runs]
    contents = [contents_of(run, checkpoints=checkpoints, **options) for run in opened]
    return NotebookPage(_document(contents), height, width)


def _document(contents: Sequence[Contents]) -> str:
    title = ", ".join(one.description["name"] for one in contents)
    return build_document(
        f"{title} · heedful", [one.description for one in contents], [one.weights for one in contents]
    )


def _summary(contents: Contents) -> str:
    description, count = contents.description, len(contents.weights)
    rounding = f"which changes probabilities by {100 * description['difference']:.1g} % at most"
    if description["type"] == "float32":
        rounding = "as trained"
    return f"{description['name']} in {description['type']}, {rounding}, {count} checkpoint{'s' * (count > 1)}"
