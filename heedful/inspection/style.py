"""The style of all figures: legible at half size, and for colour-blind readers."""

import contextlib
import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from heedful.core.storage import write_atomically

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")  # distinct for colour-blind readers (Okabe and Ito 2008)
SEQUENTIAL, DIVERGING = "viridis", "RdBu_r"
STYLE: dict[Any, Any] = {
    "font.size": 14, "axes.titlesize": 15, "grid.alpha": 0.3, "lines.linewidth": 2.2, "legend.frameon": False,
    "axes.spines.top": False, "axes.spines.right": False,
}  # fmt: skip
DPI = 110
THOUSANDS = StrMethodFormatter("{x:,.9g}")
TOKEN_SIZE = 11  # font size of tokens on an axis


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Apply the style to figures that are drawn in this context."""
    with matplotlib.rc_context(STYLE):
        yield


def panels(count: int, across: int, size: tuple[float, float]) -> tuple[Figure, Any]:
    """Return a figure with `count` axes of a size in inches, at most `across` in a row, and the axes."""
    across = min(max(count, 1), across)
    down = max(math.ceil(count / across), 1)
    figure = Figure((size[0] * across, size[1] * down), layout="constrained")
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    for axis in axes[count:]:
        axis.axis("off")
    return figure, axes[:count]


def plot_lines(
    axis: Any,
    lines: Any,
    title: str = "",
    xlabel: str = "update",
    ylabel: str = "",
    from_zero: bool = False,
    marker: str | None = None,
) -> None:
    """Draw lines on an axis.

    Args:
        lines: pairs of a label and points (x, y); lines without points are skipped.
        from_zero: whether the vertical axis begins at 0.
    """
    for color, (label, points) in zip(COLORS, lines, strict=False):
        if points:
            axis.plot(*np.transpose(points), marker=marker, markersize=4, color=color, label=label)
    axis.set(title=title, xlabel=xlabel, ylabel=ylabel)
    axis.grid(visible=True)
    if from_zero:
        axis.set_ylim(bottom=0)
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    for scale in (axis.xaxis, axis.yaxis):
        scale.set_major_formatter(THOUSANDS)
    if len(lines) > 1:
        axis.legend()


def name_ticks(axis: Any, rows: Sequence[str], columns: Sequence[str], size: float = TOKEN_SIZE) -> None:
    """Label the rows and columns of an image."""
    axis.set_xticks(range(len(columns)), columns, rotation=90, fontsize=size, parse_math=False)
    axis.set_yticks(range(len(rows)), rows, fontsize=size, parse_math=False)


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure in the format of its file suffix; return its path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix[1:] or "png", bbox_inches="tight", dpi=DPI)
    write_atomically(path, drawn.getvalue())
    return path
