"""heedful classify: write a class for each line."""

import sys

from heedful.commands.arguments import TEXTS, add_adapter, add_run


def add_arguments(parser):
    """Add the arguments of the command."""
    add_run(parser)
    add_adapter(parser)
    parser.add_argument("files", **TEXTS)
    parser.add_argument(
        "--scores", action="store_true", help="write the probability after the class, separated by a tab"
    )


def run(options):
    """Run the command."""
    from heedful.cache import keep_compilations
    from heedful.commands import terminal
    from heedful.inference.text_classifier import TextClassifier
    from heedful.run import Run

    run = Run.open(options.run).of_task("classify").with_adapter(options.adapter)
    keep_compilations()
    terminal.note_idle_devices()
    cut: list[str] = []
    classifier = TextClassifier.from_run(run)
    for label, probability in classifier.predict_stream(terminal.read(options.files), cut.append):
        print(f"{label}\t{probability:.4f}" if options.scores else label)
        sys.stdout.flush()
    terminal.warn_of_cut_lines(len(cut))
