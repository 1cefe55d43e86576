"""heedful export: write a run for another engine, and compare its translations with ours."""

import itertools
from pathlib import Path

from heedful.commands.arguments import add_run, count


def add_arguments(parser):
    """Add the arguments of the command."""
    add_run(parser)
    parser.add_argument("--to", choices=("ctranslate2",), required=True)
    parser.add_argument("--out", type=Path, help="folder (default: RUN/ctranslate2)")
    parser.add_argument(
        "--quantization", default="float32", help="float32, int8, int16, float16, ... (default: float32)"
    )
    parser.add_argument(
        "--files", nargs="+", help="source and reference to compare on (default: the test text of the run)"
    )
    parser.add_argument("--sentences", type=count, default=500, help="how many of them (default: 500)")


def run(options):
    """Run the command."""
    from heedful.cache import keep_compilations
    from heedful.commands import terminal
    from heedful.commands.evaluate import test_corpus
    from heedful.errors import InputError
    from heedful.export.ctranslate2_search import EXPORTED
    from heedful.export.parity import export_checked
    from heedful.run import Run

    run = Run.open(options.run).of_task("translate")
    pairs = list(itertools.islice(test_corpus(run, options.files), options.sentences))
    if not pairs:
        raise InputError("There is no text to check the export with.")
    keep_compilations()
    terminal.note_idle_devices()
    export_checked(run, options.out or run.path / EXPORTED, pairs, options.quantization, terminal.report_progress)
