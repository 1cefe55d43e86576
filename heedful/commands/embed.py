"""heedful embed: write a vector for each line."""

import argparse
import sys

from heedful.commands.arguments import TEXTS, add_adapter, add_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_run(parser, "a run of task fill")
    add_adapter(parser)
    parser.add_argument("files", **TEXTS)
    parser.add_argument(
        "--pooling", choices=("mean", "first", "max"),
        help="mean: the mean of all token vectors; first: the vector of the first token; max: the largest value of "
        "each component (default: as in the run)",
    )  # fmt: skip


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    from heedful import backend
    from heedful.commands import terminal
    from heedful.inference.text_embedder import TextEmbedder
    from heedful.runs.run import Run

    run = Run.open(options.run).of_task("fill").with_adapter(options.adapter)
    backend.keep_compilations()
    terminal.note_idle_devices()
    cut: list[str] = []
    embedder = TextEmbedder.from_run(run)
    for vector in embedder.predict_stream(terminal.read(options.files), cut.append, pooling=options.pooling):
        print("\t".join(f"{value:.6g}" for value in vector))
        sys.stdout.flush()
    terminal.warn_of_cut_lines(len(cut))
