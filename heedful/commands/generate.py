"""heedful generate: continue prompts with a language model."""

import argparse

from heedful.commands.arguments import add_adapter, add_run
from heedful.config import OF_SOURCE, settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_run(parser)
    add_adapter(parser)
    parser.add_argument(
        "prompts", nargs="*", default=[], metavar="PROMPT", help="texts to continue (default: lines of standard input)"
    )
    parser.add_argument(
        "--scores", action="store_true",
        help="write the log-probability of each text, in nats, before it (normalised by length for a beam)",
    )  # fmt: skip
    settings.add_options(parser, "decode", without=OF_SOURCE)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    from heedful import backend
    from heedful.commands import terminal
    from heedful.inference.generator import Generator
    from heedful.runs.run import Run

    run = Run.open(options.run).of_task("generate").with_adapter(options.adapter)
    decode = settings.given_options(run.config, "decode", options, scored=False, clients_sample=False)
    prompts = options.prompts or list(terminal.read([]))
    backend.keep_compilations()
    terminal.note_idle_devices()
    generator = Generator.from_run(run, decode)
    several = len(prompts) > 1 or decode.n_best > 1
    for number, candidates in enumerate(generator.candidates(prompts, terminal.warn, scored=options.scores), start=1):
        for text, score in candidates:
            if several or options.scores:
                print(f"--- {number}" + (f"\t{score:.4f}" if options.scores else ""))
            print(text)
