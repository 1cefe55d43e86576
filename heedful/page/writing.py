"""Write the page of one run or several."""

from collections.abc import Sequence
from pathlib import Path

from heedful.page.contents import contents_of
from heedful.page.document import build_document
from heedful.page.packing import WeightType
from heedful.run import Run
from heedful.storage import write_text


def write_page(
    runs: Sequence[Run], out: str | Path, kind: WeightType | None = None, examples: Sequence[str] = (),
    checkpoints: int | None = None,
) -> str:  # fmt: skip
    """Write one HTML file that looks into runs; return a line that says what is in it.

    Args:
        runs: one `Run`, or several to compare.
        out: the file.
        kind, examples, checkpoints: see `contents_of`.

    Raises:
        InputError: a run has no page, no weights, or damaged ones.
    """
    contents = [contents_of(run, kind, examples, checkpoints) for run in runs]
    title = ", ".join(one.description["name"] for one in contents)
    text = build_document(
        f"{title} · heedful", [one.description for one in contents], [one.weights for one in contents]
    )
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    write_text(Path(out), text)
    parts = "; ".join(
        f"{one.description['name']} in {one.description['type']}, which changes probabilities by "
        f"{100 * one.description['difference']:.1g} % at most; {len(one.weights)} checkpoints"
        for one in contents
    )
    return f"{out}: {len(text.encode()) / 1e6:.1f} MB; {parts}"
