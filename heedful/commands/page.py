"""heedful page: write one HTML file that looks into a run."""

import argparse
from pathlib import Path

from heedful.commands.arguments import add_glossary, add_text, whole_number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("out", nargs="?", type=Path, metavar="OUT.html", help="the file (default: RUN/page.html)")
    parser.add_argument(
        "--compare", action="append", default=[], type=Path, metavar="RUN", help="another run, to compare"
    )
    parser.add_argument(
        "--type", choices=("float16", "float32", "int8"),
        help="type of the weights (default: float16, or int8 above 15 million parameters)",
    )  # fmt: skip
    parser.add_argument("--example", action="append", default=[], metavar="TEXT", help="a text to begin with")
    parser.add_argument(
        "--checkpoints", type=whole_number, metavar="N",
        help="number of earlier checkpoints, in 8 bits (default: as many as fit in 16 MB)",
    )  # fmt: skip
    add_glossary(parser)
    add_text(parser)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    from heedful import backend
    from heedful.commands import terminal
    from heedful.core.storage import inside
    from heedful.data.glossary import Glossary
    from heedful.inspection.page.writing import write_page
    from heedful.runs.run import Run

    backend.keep_compilations()
    runs = [Run.open(path).with_text(options.text) for path in (options.run, *options.compare)]
    out = options.out or inside(options.run, "page.html")
    glossary = Glossary.read(options.glossary) if options.glossary else None
    summary = write_page(runs, out, options.type, options.example, options.checkpoints, glossary)
    terminal.report_written(out, summary)
