"""heedful export: write a run for another engine, and compare its results with ours."""

import argparse
import itertools
from pathlib import Path

from heedful.commands.arguments import add_run, count
from heedful.interop.export.formats import FORMATS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_run(parser)
    parser.add_argument("--to", choices=FORMATS, required=True, help="the format to write (required)")
    parser.add_argument("--out", type=Path, help="folder (default: that name in RUN)")
    parser.add_argument(
        "--quantization",
        default="float32",
        help="type of the weights; with --to ctranslate2: float32, int8, int16, float16, ...; with --to bergamot: "
        "float32 or int8; with --to onnx: float32, or int8, which is written too (default: float32)",
    )  # fmt: skip
    parser.add_argument(
        "--shortlist", nargs="*", metavar="FILE",
        help="with --to ctranslate2 or bergamot: consider only likely translations of a text's tokens, learned from "
        "parallel text (without FILE: the training text of the run); faster, but some translations differ",
    )  # fmt: skip
    parser.add_argument(
        "--files", nargs="+", help="text to compare on, as for heedful evaluate (default: the test text of the run)"
    )
    parser.add_argument("--sentences", type=count, default=500, help="how many of them (default: 500)")


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    from heedful import backend
    from heedful.commands import terminal
    from heedful.core.errors import InputError
    from heedful.core.storage import inside
    from heedful.interop.export.formats import format_named
    from heedful.interop.export.parity import export_checked
    from heedful.interop.export.shortlist import parallel_text
    from heedful.runs.run import Run

    run, form = Run.open(options.run), format_named(options.to)
    form.require_quantization(options.quantization)
    if options.shortlist is not None:
        form.require_shortlist()
    form.require_run(run)
    folder = options.out or inside(run.path, options.to)
    items = list(itertools.islice(run.scored_corpus(options.files), options.sentences))
    if not items:
        raise InputError("There is no text to check the export with.")
    backend.keep_compilations()
    terminal.note_idle_devices()
    if run.task.translates:
        pairs = [pair for pair in map(run.task.pair_of, items) if pair[0].strip()]
        texts, references = [source for source, _ in pairs], [reference for _, reference in pairs]
    else:
        lines = [line for item in items for line in (item.split("\n") if isinstance(item, str) else [item])]
        texts = [text for text in map(run.task.text_of, lines) if text.strip()][: options.sentences]
        references = None
    shortlist_text = None if options.shortlist is None else parallel_text(run, options.shortlist)
    export_checked(run, form, folder, texts, references, options.quantization, terminal.report_progress, shortlist_text)
