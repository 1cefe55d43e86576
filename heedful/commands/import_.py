"""heedful import: create a run from a pretrained model."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "source",
        help="a folder in the layout of Hugging Face, the name of a model on the hub, or a .keras file of our models",
    )
    parser.add_argument("run", type=Path, help="the new run folder")
    parser.add_argument(
        "--tokenizer", nargs="+", type=Path, default=[], metavar="FILE",
        help="for a .keras file: tokenizer.json, or two of them",
    )  # fmt: skip
    parser.add_argument(
        "--trust", action="store_true", help="let Keras load a .keras or .h5 file, which can run its author's code"
    )
    for side in ("source", "target"):
        parser.add_argument(
            f"--{side}-language", metavar="TOKEN",
            help=f"for a multilingual model such as mBART-50: the token that each {side} begins with, such as de_DE",
        )  # fmt: skip


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    from heedful.commands.terminal import print_line
    from heedful.interop.pretrained import import_model

    run = import_model(
        options.source, options.run, options.tokenizer, options.trust, options.source_language, options.target_language
    )
    begun = [side.lookup(side.prefix_ids[0]) for side in run.tokenizers() if side.prefix_ids]
    if len(set(begun)) == 2:
        print_line(f"translates from {begun[0]} to {begun[1]}")
    command = "embed" if run.config.model.untrained_head else run.config.task
    print_line(f"{run.path}: {len(run.tokenizer):,} tokens; try: heedful {command} {run.path} ...")
