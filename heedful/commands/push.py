"""heedful push: upload an export in the Hugging Face layout to the Hugging Face hub."""

import argparse
from pathlib import Path

from heedful.commands.arguments import add_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_run(parser)
    parser.add_argument("name", help="OWNER/NAME of the model on the hub; it is created if it does not exist")
    parser.add_argument("--folder", type=Path, help="folder of an export of the run (default: RUN/huggingface)")
    parser.add_argument("--private", action="store_true", help="create the model as private")
    parser.add_argument("--message", default="Upload by heedful", help="commit message (default: %(default)s)")


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    from heedful.commands.terminal import print_line, report_progress
    from heedful.interop.export.hub import push
    from heedful.runs.run import Run

    run = Run.open(options.run)
    folder = options.folder or run.path / "huggingface"
    address = push(run, folder, options.name, options.private, options.message, report_progress)
    print_line(address)
