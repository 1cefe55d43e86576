"""Figures: attention maps, positional encodings, learning rate, training curves, confusion matrices.

Axes: N heads, T target length, S source length.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from heedful import backend
from heedful.core.errors import InputError
from heedful.inspection.style import DIVERGING, SEQUENTIAL, name_ticks, panels, plot_lines, save, styled

# Training curves: for each panel, log keys with their labels and scale factors.
CURVES = {
    "loss (nats per token)": {"loss": ("training", 1), "valid_loss": ("validation", 1)},
    "translation (score of 100)": {"valid_bleu": ("BLEU", 1), "valid_chrf": ("chrF", 1)},
    "accuracy (%)": {"accuracy": ("training", 100), "valid_accuracy": ("validation", 100)},
    "speed (tokens/s)": {"tokens_per_second": ("training", 1)},
}
FROM_ZERO = ("loss (nats per token)", "speed (tokens/s)")
MAX_NAMED = 40  # most classes drawn with names and numbers; more would take minutes


def draw_attention(
    path: str | Path, inspection: Any, kind: str = "cross", layer: int = 1, head: int | None = None
) -> Path:
    """Draw the attention of a `TranslationInspection`: all heads of a layer, or one, counted from 1."""
    weights, rows, columns = inspection.heads(kind, layer)
    heads = list(range(len(weights))) if head is None else [head - 1]
    if head is not None and not 1 <= head <= len(weights):
        raise InputError(f"There is no head {head}: layer {layer} has heads 1 to {len(weights)}.")
    with styled():
        figure, axes = panels(len(heads), 4, (1.6 + 0.3 * len(columns), 1.6 + 0.3 * len(rows)))
        for axis, index in zip(axes, heads, strict=True):
            image = axis.imshow(weights[index], vmin=0, vmax=1, cmap=SEQUENTIAL)
            name_ticks(axis, rows, columns)
            axis.set_title(f"head {index + 1}", fontsize=13)
        figure.colorbar(image, ax=axes, label="weight", ticks=(0, 0.5, 1), shrink=0.8)
        figure.suptitle(f"{kind} attention, layer {layer}")
        figure.supxlabel("token that is read", fontsize=13)
        figure.supylabel("token that reads" if kind == "encoder self" else "token that is written", fontsize=13)
        return save(figure, path)


def draw_positions(path: str | Path, encoding: np.ndarray) -> Path:
    """Draw a positional encoding (positions, d_model); dimensions on the horizontal axis."""
    with styled():
        figure, [axis] = panels(1, 1, (8, 5))
        largest = np.abs(encoding).max()
        mesh = axis.pcolormesh(encoding, cmap=DIVERGING, vmin=-largest, vmax=largest)
        axis.set(xlabel="dimension", ylabel="position")
        figure.colorbar(mesh, ax=axis, label="value added to the embedding")
        return save(figure, path)


def draw_schedule(path: str | Path, schedule: Any, updates: int) -> Path:
    """Draw the learning rate over the updates."""
    at = np.unique(np.linspace(0, updates - 1, 500).astype(int))
    rates = [float(backend.to_numpy(schedule(int(step) * schedule.micro_batches))) for step in at]
    with styled():
        figure, [axis] = panels(1, 1, (7, 4.5))
        plot_lines(
            axis, [("learning rate", list(zip(at + 1, rates, strict=True)))], ylabel="learning rate", from_zero=True
        )
        return save(figure, path)


def draw_curves(path: str | Path, log: Sequence[dict[str, Any]]) -> Path:
    """Draw the training curves from the log entries of a run."""
    with styled():
        return save(curves(log), path)


def curves(log: Sequence[dict[str, Any]]) -> Any:
    """Return a figure of the training curves in the log entries of a run, with a panel for each unit."""
    shown = {title: lines for title, lines in CURVES.items() if any(name in entry for entry in log for name in lines)}
    figure, axes = panels(len(shown), 2, (5.2, 3.9))
    for axis, (title, entries) in zip(axes, shown.items(), strict=True):
        lines = [
            (label, [(entry["update"], factor * entry[name]) for entry in log if name in entry])
            for name, (label, factor) in entries.items()
        ]
        plot_lines(axis, lines, title, from_zero=title in FROM_ZERO, marker="o")
    return figure


def draw_confusion(path: str | Path, confusion: np.ndarray, labels: Sequence[str]) -> Path:
    """Draw how often true classes (rows) got each prediction (columns); for many classes only the colours."""
    many = len(labels) > MAX_NAMED
    size = 3.5 + 0.6 * min(len(labels), MAX_NAMED)
    shares = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    with styled():
        figure, [axis] = panels(1, 1, (size + 1, size))
        image = axis.imshow(shares, vmin=0, vmax=1, cmap="Blues")
        for row, column in np.ndindex(*confusion.shape) if not many else ():
            color = "white" if shares[row, column] > 0.5 else "black"
            axis.text(column, row, f"{confusion[row, column]:,}", ha="center", va="center", color=color, fontsize=11)
        if not many:
            name_ticks(axis, labels, labels)
        axis.set(xlabel="predicted class", ylabel="true class")
        figure.colorbar(image, ax=axis, label="share of the true class", shrink=0.6)
        return save(figure, path)
