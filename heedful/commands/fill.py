"""heedful fill: predict the token at each [MASK] of a text."""

import argparse
import json
import sys
from collections.abc import Iterable

from heedful.commands.arguments import add_adapter, add_json, add_run, count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_run(parser)
    add_adapter(parser)
    parser.add_argument("text", nargs="?", help="a text with [MASK] in it (default: lines of standard input)")
    parser.add_argument("--count", type=count, default=5, help="candidates for each gap (default: 5)")
    add_json(parser, "print JSON for machines, one line for each text")


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    from heedful import backend
    from heedful.commands import terminal
    from heedful.inference.mask_filler import MaskFiller
    from heedful.inference.predictor import FilledText
    from heedful.runs.run import Run

    run = Run.open(options.run).of_task("fill").with_adapter(options.adapter)
    backend.keep_compilations()
    terminal.note_idle_devices()
    filler = MaskFiller.from_run(run)
    filled: Iterable[FilledText]
    if options.text is None:
        filled = filler.predict_stream(terminal.read([]), terminal.warn, count=options.count)
    else:
        filled = [filler.fill(options.text, options.count)]
    for text, gaps in filled:
        print(json.dumps({"text": text, "gaps": gaps}, ensure_ascii=False) if options.json else _lines(text, gaps))
        sys.stdout.flush()  # a reader may wait for the answer


def _lines(text, gaps):
    """Return a filled text, and below it the candidates for each gap."""
    shown = [
        f"    gap {gap}\t{probability:.4f}\t{token.strip()}"
        for gap, candidates in enumerate(gaps, start=1)
        for token, probability in candidates
    ]
    return "\n".join([text, *shown])
