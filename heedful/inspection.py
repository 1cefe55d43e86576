"""Looking inside: attention maps, the positional encoding, the learning rate, the curves of a training.

Axes: N heads, T target length, S source length.
"""

import io
import math
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from heedful import backend
from heedful.errors import InputError
from heedful.layers import Trace, sinusoid
from heedful.models.ensemble import Ensemble
from heedful.run import weights_by_name
from heedful.special_tokens import END_ID, START_ID
from heedful.storage import write_atomically

MOST_NAMED = 40  # classes whose confusions are drawn with names and numbers; 150 of them would take a minute
POSITIONS_DRAWN = 128
LEARNED = "positions/embeddings"  # how the name of a learned table ends
KINDS = ("encoder self", "decoder self", "cross")

# The curves of a training: for each unit the entries of the log, with their labels and factors.
CURVES = {
    "loss (nats per token)": {"loss": ("training", 1), "valid_loss": ("validation", 1)},
    "translation (score of 100)": {"valid_bleu": ("BLEU", 1), "valid_chrf": ("chrF", 1)},
    "accuracy (%)": {"accuracy": ("training", 100), "valid_accuracy": ("validation", 100)},
    "speed (tokens/s)": {"tokens_per_second": ("training", 1)},
}
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")  # distinct for colour-blind readers (Okabe and Ito 2008)
STYLE = {
    "font.size": 14, "axes.titlesize": 15, "axes.grid": True, "grid.alpha": 0.3, "lines.linewidth": 2.2,
    "legend.frameon": False, "axes.spines.top": False, "axes.spines.right": False,
}  # fmt: skip
THOUSANDS = StrMethodFormatter("{x:,.9g}")
FROM_ZERO = ("loss (nats per token)", "speed (tokens/s)")


class AttentionMaps:
    """The attention weights of every layer for one sentence and its translation.

    Args:
        translator: a `Translator`.
        source: a text.
        target: its translation, or None to translate it.
    """

    def __init__(self, translator, source, target=None):
        if isinstance(translator.model, Ensemble):
            raise InputError("Several models have no attention in common: look into each by itself.")
        room = translator.model.max_length - 1
        source_ids = translator.source_tokenizer.encode(source)[:room]
        if not source_ids:
            raise InputError("There is nothing to look at in an empty sentence.")
        if target is None:
            target_ids = translator.decode_ids([source_ids])[0]  # which may find no end, and fill all there is
        else:
            target_ids = translator.target_tokenizer.encode(target)
        target_ids = target_ids[:room]
        self.translation = translator.target_tokenizer.decode(target_ids)
        source_ids, read_ids = [*source_ids, END_ID], [START_ID, *target_ids]
        self.source_tokens = translator.source_tokenizer.pieces(source_ids)
        self.read_tokens = translator.target_tokenizer.pieces(read_ids)
        self.written_tokens = translator.target_tokenizer.pieces([*target_ids, END_ID])
        trace = Trace()
        translator.model((np.array([source_ids]), np.array([read_ids])), trace=trace)
        self.weights = {path: backend.to_numpy(trace[path])[0] for path in trace}  # (N, T, S)
        self.num_layers = translator.model.num_layers

    def weights_of(self, kind, layer):
        """Return (weights (N, T, S), names of the rows, names of the columns) of a layer, counted from 1."""
        if kind not in KINDS:
            raise InputError(f"Unknown kind of attention {kind!r}: choose one of {', '.join(KINDS)}.")
        if not 1 <= layer <= self.num_layers:
            raise InputError(f"There is no layer {layer}: the model has layers 1 to {self.num_layers}.")
        path = {"encoder self": "encoder/block_{}/self_attention", "decoder self": "decoder/block_{}/self_attention",
                "cross": "decoder/block_{}/cross_attention"}[kind].format(layer - 1)  # fmt: skip
        rows = self.source_tokens if kind == "encoder self" else self.written_tokens
        columns = self.read_tokens if kind == "decoder self" else self.source_tokens
        return self.weights[path], rows, columns

    def sheet(self, path, kind="cross", layer=None, head=None):
        """Draw all heads of a layer, or one head, into a PNG with the tokens on both axes; return its path."""
        layer = self.num_layers if layer is None else layer
        weights, rows, columns = self.weights_of(kind, layer)
        heads = range(len(weights)) if head is None else [head - 1]
        if head is not None and not 1 <= head <= len(weights):
            raise InputError(f"There is no head {head}: layer {layer} has heads 1 to {len(weights)}.")
        across = min(4, len(heads))
        down = math.ceil(len(heads) / across)
        size = 1.2 + 0.26 * len(columns), 1.0 + 0.26 * len(rows)
        figure = Figure((size[0] * across, size[1] * down), layout="constrained")
        axes = figure.subplots(down, across, squeeze=False)
        for axis in axes.flat[len(heads) :]:
            axis.axis("off")
        for axis, index in zip(axes.flat, heads, strict=False):
            axis.imshow(weights[index], vmin=0, vmax=1, cmap="viridis")
            axis.set_xticks(range(len(columns)), columns, rotation=90, fontsize=8, parse_math=False)
            axis.set_yticks(range(len(rows)), rows, fontsize=8, parse_math=False)
            axis.set_xlabel(f"head {index + 1}")
        figure.suptitle(f"{kind} attention, layer {layer}: each row shows what the writing of its token reads")
        return _save(figure, path)


def plot_positions(path, run):
    """Draw what the model of a run adds to its first 128 tokens for their positions; dimensions go across.

    Raises:
        InputError: it adds nothing, but turns queries and keys; or it learns its positions and has not been trained.
    """
    config = run.config.model
    if config.positions == "rotary":
        raise InputError("Rotary positions have no encoding to draw: they turn queries and keys.")
    if config.positions == "learned":
        tables = [array for name, array in weights_by_name(run.load_model()).items() if name.endswith(LEARNED)]
        encoding = tables[0][:POSITIONS_DRAWN]
    else:
        concatenated = config.positions == "sinusoidal_concatenated"
        encoding = backend.to_numpy(sinusoid(np.arange(POSITIONS_DRAWN), config.d_model, concatenated))
    figure = Figure((8, 5))
    axis = figure.subplots()
    most = np.abs(encoding).max()
    mesh = axis.pcolormesh(encoding, cmap="RdBu", vmin=-most, vmax=most)
    axis.set_xlabel("dimension")
    axis.set_ylabel("position")
    figure.colorbar(mesh, ax=axis)
    return _save(figure, path)


def plot_schedule(path, schedule, updates):
    """Draw the learning rate over the updates."""
    at = np.unique(np.linspace(0, updates - 1, 500).astype(int))
    figure = Figure((7, 4))
    axis = figure.subplots()
    axis.plot(at + 1, [float(backend.to_numpy(schedule(int(step) * schedule.micro_batches))) for step in at])
    axis.set_xlabel("update")
    axis.set_ylabel("learning rate")
    axis.grid(alpha=0.3)
    return _save(figure, path)


def plot_curves(path, log):
    """Draw the curves of a training from the entries of a run's log; return the path."""
    with matplotlib.rc_context(STYLE):
        return _save(curves(log), path)


def curves(log):
    """Return a figure of the curves in the entries of a run's log, with a panel for each unit."""
    panels = {title: lines for title, lines in CURVES.items() if any(name in entry for entry in log for name in lines)}
    across = min(max(len(panels), 1), 2)
    down = max(math.ceil(len(panels) / across), 1)
    figure = Figure((5.2 * across, 3.9 * down), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).flat
    for axis, (title, lines) in zip(axes, panels.items(), strict=False):
        for color, (name, (label, factor)) in zip(COLORS, lines.items(), strict=False):
            points = [(entry["update"], factor * entry[name]) for entry in log if name in entry]
            if points:
                axis.plot(*zip(*points, strict=True), marker="o", markersize=4, color=color, label=label)
        axis.set(title=title, xlabel="update")
        if title in FROM_ZERO:
            axis.set_ylim(bottom=0)
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        for scale in (axis.xaxis, axis.yaxis):
            scale.set_major_formatter(THOUSANDS)
        if len(lines) > 1:
            axis.legend()
    for axis in axes:
        axis.axis("off")
    return figure


def plot_confusion(path, confusion, labels):
    """Draw how often each class (rows) was taken for each (columns); of many classes the colours alone."""
    many = len(labels) > MOST_NAMED
    size = 2.5 + 0.5 * min(len(labels), MOST_NAMED)
    figure = Figure((size, size), layout="constrained")
    axis = figure.subplots()
    shares = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    axis.imshow(shares, vmin=0, vmax=1, cmap="Blues")
    for row, column in np.ndindex(*confusion.shape) if not many else ():
        color = "white" if shares[row, column] > 0.5 else "black"
        axis.text(column, row, f"{confusion[row, column]:,}", ha="center", va="center", color=color, fontsize=8)
    if not many:
        axis.set_xticks(range(len(labels)), labels, parse_math=False)
        axis.set_yticks(range(len(labels)), labels, parse_math=False)
    axis.set_xlabel("found")
    axis.set_ylabel("wanted")
    return _save(figure, path)


def _save(figure, path):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix[1:] or "png", bbox_inches="tight", dpi=110)
    write_atomically(path, drawn.getvalue())
    return path
