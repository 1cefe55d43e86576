"""heedful translate: one line out for each line in."""

import sys
from pathlib import Path

from heedful import settings
from heedful.commands.arguments import TEXTS, add_adapter, add_run

ENGINES = ("heedful", "ctranslate2")


def add_arguments(parser):
    """Add the arguments of the command."""
    add_run(parser)
    add_adapter(parser)
    parser.add_argument("files", **TEXTS)
    parser.add_argument("--with", dest="others", nargs="+", type=Path, metavar="RUN", help="more runs, as an ensemble")
    parser.add_argument("--engine", choices=ENGINES, default="heedful", help="the engine; ctranslate2 needs an export")
    parser.add_argument(
        "--scores", action="store_true",
        help="write line number, score and text of each candidate, separated by tabs (--n-best does so too)",
    )  # fmt: skip
    parser.add_argument("--prefixes", type=Path, metavar="FILE", help="beginnings of the translations, one per line")
    settings.add_options(parser, "decode")


def run(options):
    """Run the command."""
    from heedful.cache import keep_compilations
    from heedful.commands import terminal
    from heedful.progress import progress_bar
    from heedful.run import Run

    source = terminal.read(options.files)
    prefixes = terminal.read([options.prefixes]) if options.prefixes else None
    runs = [Run.open(path).of_task("translate") for path in [options.run, *(options.others or [])]]
    runs[0].with_adapter(options.adapter)
    decode = settings.given_options(runs[0].config, "decode", options)
    keep_compilations()
    terminal.note_idle_devices()
    translator = _translator(options.engine, runs, decode)
    tabs = options.scores or decode.n_best > 1  # with several results per line, each needs the line number
    with progress_bar() as bar:
        shown = bar.add_task("lines", total=None)
        found = translator.predict_stream(source, terminal.warn, scored=tabs, prefixes=prefixes)
        for number, candidates in enumerate(found, start=1):
            for text, score in candidates:
                line = terminal.one_line(text)
                sys.stdout.write(f"{number}\t{score:.4f}\t{line}\n" if tabs else f"{line}\n")
            sys.stdout.flush()  # a reader may wait for the line
            bar.advance(shown)


def _translator(engine, runs, decode):
    if engine == "heedful":
        from heedful.inference.translator import Translator

        return Translator.from_runs(runs, decode)
    from heedful.errors import InputError
    from heedful.export.ctranslate2_search import ctranslate2_translator

    if len(runs) > 1:
        raise InputError("CTranslate2 translates with one run: leave out --with, or use our own engine.")
    return ctranslate2_translator(runs[0], decode)
