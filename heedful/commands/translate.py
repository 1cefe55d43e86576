"""heedful translate: one line out for each line in."""

import argparse
import dataclasses
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from heedful.commands.arguments import TEXTS, add_adapter, add_engine, add_glossary, add_run, count
from heedful.config import settings
from heedful.core.errors import InputError, counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_run(parser)
    add_adapter(parser)
    add_glossary(parser)
    documents = "or a document: .html, .md, .po, .xlf, .srt, .vtt, .docx"
    parser.add_argument("files", **TEXTS | {"help": f"{TEXTS['help']}, {documents}"})
    parser.add_argument(
        "--with", dest="others", action="append", type=Path, metavar="RUN",
        help="another run, as an ensemble with the first; may be given several times",
    )  # fmt: skip
    add_engine(parser, "that translates")
    parser.add_argument(
        "--scores", action="store_true",
        help="write line number, score and text of each candidate, separated by tabs (--n-best does so too)",
    )  # fmt: skip
    parser.add_argument("--prefixes", type=Path, metavar="FILE", help="beginnings of the translations, one per line")
    bulk = parser.add_argument_group(
        "a whole file", "lines of text, .tsv, .jsonl or .parquet; OUT is written when everything is translated"
    )
    bulk.add_argument("--out", type=Path, help="file for the translations, in the format of the input")
    bulk.add_argument(
        "--field", help="column (.tsv, from 1) or field (.jsonl, .parquet) of the text (default: 1; text)"
    )
    bulk.add_argument("--into", help="field of the translation (default: translation)")
    bulk.add_argument(
        "--share", type=share, metavar="I/N",
        help="translate only part I of N, so that N processes can share a file; a finished part is skipped",
    )  # fmt: skip
    bulk.add_argument("--gather", type=count, metavar="N", help="join N finished shares in OUT")
    settings.add_options(parser, "decode")


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    from heedful.commands import terminal
    from heedful.core.progress import progress_bar
    from heedful.data.document_formats import is_document
    from heedful.data.text_files import one_line
    from heedful.inference.bulk.records import format_of
    from heedful.runs.run import Run

    if any(is_document(path) for path in options.files):
        return _to_file(translate_document, options)
    if options.out or options.share or options.gather:
        return _to_file(translate_file, options)
    if options.field is not None or options.into is not None:
        raise InputError(f"--{'field' if options.field is not None else 'into'} is for a whole file: give --out.")
    if records := [path for path in options.files if format_of(path) != "text"]:
        raise InputError(f"{records[0]} has records, not lines of text: give --out.")
    source = terminal.read(options.files)
    prefixes = terminal.read([options.prefixes]) if options.prefixes else None
    runs = [Run.open(path).of_task("translate") for path in [options.run, *(options.others or [])]]
    runs[0].with_adapter(options.adapter)
    decode = settings.given_options(runs[0].config, "decode", options, scored=options.scores, clients_sample=False)
    _prepare(options.engine)
    translator = _translator(options, runs, decode)
    tabs = options.scores or decode.n_best > 1  # with several results per line, each needs the line number
    with progress_bar() as bar:
        shown = bar.add_task("lines", total=None)
        translated = translator.predict_stream(source, terminal.warn, scored=tabs, prefixes=prefixes)
        for number, candidates in enumerate(translated, start=1):
            for text, score in candidates:
                line = one_line(text)
                sys.stdout.write(f"{number}\t{score:.4f}\t{line}\n" if tabs else f"{line}\n")
            sys.stdout.flush()  # a reader may wait for the line
            bar.advance(shown)
    return 0


def _to_file(translate: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """Translate into a file; a signal ends the work as Ctrl-C does, so that incomplete files are removed."""
    from heedful.commands import terminal

    with terminal.termination_interrupts() as received:
        try:
            return translate(options)
        except KeyboardInterrupt:
            terminal.report_progress(f"Stopped before {options.out} was complete.")
            return 128 + (received or [signal.SIGINT])[0]


def share(text: str) -> Any:
    """Parse the argument of --share."""
    from heedful.inference.bulk.shares import Share

    try:
        return Share.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def translate_document(options: argparse.Namespace) -> int:
    """Translate a document, such as a page of HTML."""
    from heedful.commands import terminal
    from heedful.core.output import is_replaceable, require_no_folder, write_output
    from heedful.core.progress import progress_bar
    from heedful.data.corpus import resolve
    from heedful.data.document_formats import read_document
    from heedful.inference.line_reader import protection_of_run
    from heedful.runs.run import Run

    if not options.out or len(options.files) != 1:
        raise InputError("A document is translated alone, into a file: give --out.")
    if given := [name for name in ("scores", "prefixes", "field", "into", "share", "gather") if getattr(options, name)]:
        raise InputError(f"--{given[0]} is for lines: leave it out for a document.")
    require_no_folder(options.out)
    path = resolve(options.files[0])
    if not path.is_file():
        raise InputError(f"{options.files[0]} does not exist.")
    if is_replaceable(options.out) and options.out.resolve() == path.resolve():
        raise InputError(f"{options.out} is the input file: choose another name for the translations.")
    runs = [Run.open(path).of_task("translate") for path in [options.run, *(options.others or [])]]
    runs[0].with_adapter(options.adapter)
    decode = settings.given_options(runs[0].config, "decode", options)
    if decode.n_best > 1:
        raise InputError("A document has one translation: set --n-best 1.")
    document = read_document(path.read_bytes(), str(options.files[0]), protection_of_run(runs[0]))
    _prepare(options.engine)
    translator = _translator(options, runs, decode)
    results = []
    with progress_bar() as bar:
        shown = bar.add_task("texts", total=len(document.texts))
        for text in translator.translate_texts(document, f"{options.files[0]}, text", terminal.warn):
            results.append(text)
            bar.advance(shown)
    content = document.written(results)
    write_output(options.out, content)
    terminal.report_written(options.out, f"{options.out}: {counted(len(results), 'text')}")
    return 0


def translate_file(options: argparse.Namespace) -> int:
    """Translate a whole file, or one of its shares, or gather its shares."""
    from heedful.commands import terminal
    from heedful.core.output import is_replaceable
    from heedful.core.progress import progress_bar
    from heedful.core.storage import file_hash, read_checksum
    from heedful.inference.bulk import records
    from heedful.inference.bulk.shares import Bulk
    from heedful.inference.line_translator import BATCHES_AHEAD
    from heedful.runs.adapters import adapter_file
    from heedful.runs.run import Run

    _check_file_arguments(options)
    runs = [Run.open(path).of_task("translate") for path in [options.run, *(options.others or [])]]
    runs[0].with_adapter(options.adapter)
    decode = settings.given_options(runs[0].config, "decode", options)
    if decode.n_best > 1:
        raise InputError("A whole file has one translation for each line: set --n-best 1.")
    source = records.opened(options.files[0], options.field, options.into)
    made_with = {
        "weights": [run.weights_fingerprint() for run in runs], "decode": dataclasses.asdict(decode),
        "engine": _engine_of(options, runs[0]), "field": source.field, "into": source.into,
        "adapter": options.adapter and read_checksum(adapter_file(options.adapter)),
    } | ({"glossary": file_hash(options.glossary)} if options.glossary else {})  # fmt: skip
    bulk = Bulk(source, options.out, made_with, BATCHES_AHEAD * decode.batch_size)
    if options.gather:
        terminal.report_written(options.out, f"{options.out}: {counted(bulk.gather(options.gather), 'line')}")
        return 0
    _prepare(options.engine)

    def translate(lines, first):
        translator = _translator(options, runs, decode)
        with progress_bar() as bar:
            shown = bar.add_task("lines", total=None)
            for candidates in translator.predict_stream(lines, terminal.warn, first=first):
                yield candidates[0].text
                bar.advance(shown)

    if not options.share:
        environments = _devices(options.engine)[: bulk.windows()] if is_replaceable(options.out) else []
        if len(environments) > 1:
            if code := _on_every_device(options, source, environments):
                return code
            lines = bulk.gather(len(environments), remove=True)
        else:
            lines = bulk.whole(translate)
        terminal.report_written(options.out, f"{options.out}: {counted(lines, 'line')}")
        return 0
    done = bulk.compute(options.share, translate)
    terminal.report_progress(
        f"share {options.share} is finished" if done is None else f"share {options.share}: {counted(done, 'line')}"
    )
    return 0


def _prepare(engine):
    """Keep what our own engine compiles, and report unused devices; another engine does not load Keras."""
    if engine == "heedful":
        from heedful import backend
        from heedful.commands import terminal

        backend.keep_compilations()
        terminal.note_idle_devices()


def _devices(engine):
    """Return the environment variables of a process for each device, if there are several."""
    if engine != "heedful":
        return []
    from heedful import backend

    if backend.device_count() == 1:
        return []
    environments = [
        environment for n in range(backend.device_count()) if (environment := backend.environment_of_device(n))
    ]
    return environments if len(environments) == backend.device_count() else []


def _on_every_device(options, source, environments):
    """Translate a share of a file with each device, in a process of its own; return the exit code."""
    from heedful.core.distributed.launch import launch

    name, *rest = options.arguments
    if source.copy is not None:  # of a pipe, which only one process could read
        rest = [str(source.path) if one == str(options.files[0]) else one for one in rest]
    shares = [f"{number}/{len(environments)}" for number in range(1, len(environments) + 1)]
    commands = [[sys.executable, "-m", "heedful", name, "--share", one, *rest] for one in shares]
    return launch(commands, shlex.join(["heedful", name, *rest]), environments, together=False)


def _check_file_arguments(options):
    """Raise `InputError` if the arguments for a whole file contradict each other."""
    from heedful.core.output import is_replaceable, require_no_folder
    from heedful.data.corpus import resolve
    from heedful.data.text_files import uncompressed_name
    from heedful.inference.bulk import records

    if not options.out or len(options.files) != 1 or options.scores or options.prefixes:
        raise InputError("A whole file needs one input file and --out, and takes no --scores or --prefixes.")
    if options.share and options.gather:
        raise InputError("--share computes a part, --gather joins all parts: give one of them.")
    require_no_folder(options.out)
    if not is_replaceable(options.out):
        if options.share or options.gather:
            raise InputError(f"{options.out} is no regular file: shares are kept beside one.")
        return
    if options.out.resolve() == resolve(options.files[0]).resolve():
        raise InputError(f"{options.out} is the input file: choose another name for the translations.")
    if records.format_of(options.out) != records.format_of(options.files[0]):
        raise InputError(f"{options.out} must have the same file extension as {options.files[0]}.")
    if uncompressed_name(options.out) != options.out.name:
        raise InputError(f"{options.out} would not be compressed: leave out {options.out.suffix}.")


def _engine_of(options, run):
    """Return what determines the translations besides weights and settings: the engine, and its files."""
    if options.engine == "heedful":
        return options.engine
    from heedful.interop.export.ctranslate2_search import EXPORTED, export_identity, require_export

    require_export(run, run.path / EXPORTED)
    return f"{options.engine} {export_identity(run.path / EXPORTED)}"


def _translator(options, runs, decode):
    """Return the translator of an engine, with the glossary that the user names."""
    if options.engine == "heedful":
        from heedful.inference.translator import Translator

        translator = Translator.from_runs(runs, decode)
    else:
        from heedful.interop.export.ctranslate2_search import ctranslate2_translator

        if runs[0].adapter:
            raise InputError("CTranslate2 exports cannot load adapters: drop --adapter, or use --engine heedful.")
        if len(runs) > 1:
            raise InputError("CTranslate2 translates with one run: leave out --with, or use --engine heedful.")
        translator = ctranslate2_translator(runs[0], decode)
    if options.glossary:
        from heedful.data.glossary import Glossary

        translator.glossary = Glossary.read(options.glossary)
    return translator
