"""The verbs of a translator: translate, export, inspect."""

import itertools
import sys

from heedful import inspection, settings
from heedful.cache import keep_compilations
from heedful.errors import InputError
from heedful.generation.translator import Translator
from heedful.progress import progress_bar
from heedful.run import Run
from heedful.training.optimizer import training_schedule
from heedful.verbs import lines
from heedful.verbs.evaluation import test_corpus


def translate(options):
    """Translate standard input or files to standard output."""
    source = lines.read(options.files)
    prefixes = lines.read([options.prefixes]) if options.prefixes else None
    runs = [Run.open(path).of_task("translate") for path in [options.run, *(options.others or [])]]
    decode = settings.given_options(runs[0].config, "decode", options)
    keep_compilations()
    lines.note_idle_devices()
    if options.engine == "heedful":
        translator = Translator.from_runs(runs)
        translator.decode = decode
    else:
        from heedful.serving.engine import ctranslate2_translator

        if len(runs) > 1:
            raise InputError("CTranslate2 translates with one run: leave out --with, or use our own engine.")
        translator = ctranslate2_translator(runs[0], decode)
    tabs = options.scores or decode.n_best > 1  # several lines for one need its number
    with progress_bar() as bar:
        task = bar.add_task("lines", total=None)
        found = translator.stream_candidates(source, lines.warn, tabs, prefixes)
        for number, candidates in enumerate(found, start=1):
            for text, score in candidates:
                line = lines.one_line(text)
                sys.stdout.write(f"{number}\t{score:.4f}\t{line}\n" if tabs else f"{line}\n")
            sys.stdout.flush()  # somebody may wait for it
            bar.advance(task)


def export(options):
    """Write a run for another engine, through the parity gate."""
    from heedful.serving.engine import EXPORTED
    from heedful.serving.export import export_checked

    run = Run.open(options.run).of_task("translate")
    pairs = list(itertools.islice(test_corpus(run, options.files), options.sentences))
    if not pairs:
        raise InputError("There is no text to check the export with.")
    keep_compilations()
    lines.note_idle_devices()
    export_checked(run, options.out or run.path / EXPORTED, pairs, options.quantization, lines.tell)


def inspect(options):
    """Draw figures and print their paths."""
    run = Run.open(options.run)
    if not (options.sentence or options.positions or options.schedule):
        raise InputError("Give a sentence, --positions or --schedule.")
    if not options.sentence and (options.target or options.layer or options.head or options.kind):
        raise InputError("--target, --layer, --head and --kind say what to draw of a sentence: give one.")
    out = options.out or run.path / "figures"
    if options.positions:
        print(inspection.plot_positions(out / "positions.png", run))
    if options.schedule:
        learning = run.config.train
        schedule = training_schedule(learning, run.config.model.d_model)
        print(inspection.plot_schedule(out / "schedule.png", schedule, learning.updates))
    if options.sentence:
        _draw_attention(run.of_task("translate"), options, out)


def _draw_attention(run, options, out):
    """Draw what a sentence and its translation read, a sheet for each kind and layer that is asked for."""
    maps = inspection.AttentionMaps(Translator.from_run(run), options.sentence, options.target)
    print(maps.translation)
    for kind in [options.kind] if options.kind else inspection.KINDS:
        for layer in [options.layer] if options.layer else range(1, maps.num_layers + 1):
            name = f"{kind.replace(' ', '-')}-layer{layer}" + (f"-head{options.head}" if options.head else "")
            print(maps.sheet(out / f"{name}.png", kind, layer, options.head))
