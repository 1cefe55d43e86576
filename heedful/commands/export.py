"""heedful export: write a run for another engine, and compare its results with ours."""

import itertools
from pathlib import Path

from heedful.commands.arguments import add_run, count


def add_arguments(parser):
    """Add the arguments of the command."""
    add_run(parser)
    parser.add_argument("--to", choices=("ctranslate2", "huggingface", "onnx"), required=True)
    parser.add_argument("--out", type=Path, help="folder (default: RUN/ctranslate2, RUN/huggingface or RUN/onnx)")
    parser.add_argument(
        "--quantization",
        default="float32",
        help="with --to ctranslate2: float32, int8, int16, float16, ...; with --to onnx: float32, or int8, which is "
        "written too (default: float32)",
    )  # fmt: skip
    parser.add_argument(
        "--files", nargs="+", help="text to compare on, as for heedful evaluate (default: the test text of the run)"
    )
    parser.add_argument("--sentences", type=count, default=500, help="how many of them (default: 500)")


def run(options):
    """Run the command."""
    from heedful.cache import keep_compilations
    from heedful.commands import terminal
    from heedful.commands.evaluate import test_corpus
    from heedful.errors import InputError
    from heedful.run import Run

    run = Run.open(options.run)
    if options.to == "huggingface" and options.quantization != "float32":
        raise InputError("--quantization is for --to ctranslate2 and --to onnx; this export keeps float32.")
    if options.to == "onnx" and options.quantization not in ("float32", "int8"):
        raise InputError(f"--to onnx writes float32 or int8, not {options.quantization}.")
    if options.to == "ctranslate2":
        run = run.of_task("translate")
    items = list(itertools.islice(test_corpus(run, options.files), options.sentences))
    if not items:
        raise InputError("There is no text to check the export with.")
    keep_compilations()
    terminal.note_idle_devices()
    folder = options.out or run.path / options.to
    if options.to == "ctranslate2":
        from heedful.export import parity

        parity.export_checked(
            run, folder, list(map(run.task.pair_of, items)), options.quantization, terminal.report_progress
        )
        return
    parts = (part for item in items for part in (item.split("\n") if isinstance(item, str) else [item]))
    texts = [text for text in map(run.task.text_of, parts) if text.strip()][: options.sentences]
    if options.to == "onnx":
        from heedful.export import onnx

        onnx.export_checked(run, folder, texts, options.quantization == "int8", terminal.report_progress)
    else:
        from heedful.export import huggingface_parity

        huggingface_parity.export_checked(run, folder, texts, terminal.report_progress)
