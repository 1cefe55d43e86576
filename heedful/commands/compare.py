"""heedful compare: compare the scores of runs."""

import argparse
import json
from pathlib import Path

from heedful.commands.arguments import add_json
from heedful.core.plugins import metric_names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders")
    parser.add_argument(
        "--metric",
        help=f"{', '.join(metric_names())}, or external.NAME of `evaluate` (default: that of the task)",
    )
    add_json(parser)
    parser.epilog = (
        "Runs that differ only in the seed share a row. Runs that were scored differently are refused: on\n"
        "another text, with other decoding settings, or with other signatures."
    )


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    from heedful.core.errors import InputError
    from heedful.core.plugins import find_metric
    from heedful.runs.run import Run
    from heedful.runs.scores.comparison import compare

    if options.metric:
        find_metric(options.metric)  # an unknown one is reported before the runs are read
    if len({path.resolve() for path in options.runs}) < len(options.runs):
        raise InputError("A run is named twice.")
    comparison = compare([Run.open(path) for path in options.runs], options.metric)
    if options.json:
        print(json.dumps(comparison.as_dict(), ensure_ascii=False))
        return
    for line in comparison.lines():
        print(line)
