"""The command line: each verb imports what it needs, so that `heedful --help` is instant."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from heedful import settings
from heedful.config import Config
from heedful.errors import InputError
from heedful.memory import hold_memory

ENGINES = ("heedful", "ctranslate2")
RECIPES = Path(__file__).parent / "recipes"


def main(arguments=None):
    """Run a verb; return the exit code: 0, 2 for a user's mistake, 128 + number after a signal."""
    arguments = sys.argv[1:] if arguments is None else arguments
    arguments, overrides = settings.take(arguments) if arguments[:1] == ["train"] else (arguments, [])
    options = _parser().parse_args(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # where TensorFlow is installed it greets on standard error
    hold_memory()
    try:
        return options.verb(options, overrides) or 0
    except InputError as error:
        print(f"heedful: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains once more at exit
        return 0
    except OSError as error:
        print(f"heedful: {error.strerror}: {error.filename or ''}".rstrip(": "), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("heedful: stopped.", file=sys.stderr)
        return 130


def _parser():
    parser = argparse.ArgumentParser(prog="heedful", description="Train, look into and ship Transformers.")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    def add(name, function, text, epilog=None):
        formatter = argparse.RawDescriptionHelpFormatter
        verb = verbs.add_parser(name, help=text, description=text, epilog=epilog, formatter_class=formatter)
        verb.set_defaults(verb=function)
        return verb

    quick = add("quickstart", quickstart, "train on the built-in Portuguese-English corpus, translate, show attention")
    quick.add_argument("--run", type=Path, default=Path("runs/quickstart"), help="run folder (made anew)")

    listing = "settings (also keys of a recipe): --SECTION.KEY VALUE\n" + "\n".join(settings.describe())
    verb = add("train", train, "train a run from a recipe, or resume one", epilog=listing)
    verb.add_argument("recipe", nargs="?", help=f"a TOML file, or one of {', '.join(recipe_names())}")
    verb.add_argument("--run", type=Path, help="run folder (default: runs/NAME)")
    verb.add_argument("--resume", type=Path, metavar="RUN", help="continue the run in this folder, exactly")
    verb.add_argument("--force", action="store_true", help="overwrite a run folder that holds a run")
    verb.add_argument("--plan", action="store_true", help="print vocabulary, batch shapes and padding, and stop")

    verb = add("translate", translate, "translate lines: one line out for each line in")
    verb.add_argument("run", type=Path)
    verb.add_argument("files", nargs="*", type=Path, help="text files, plain or .gz (default: standard input)")
    verb.add_argument("--with", dest="others", nargs="+", type=Path, metavar="RUN", help="more runs, which vote too")
    verb.add_argument("--engine", choices=ENGINES, default="heedful", help="what searches; export for it first")
    verb.add_argument(
        "--scores",
        action="store_true",
        help="write line number, score and text of each candidate, by tabs (--n-best does so too)",
    )
    verb.add_argument("--prefixes", type=Path, metavar="FILE", help="what each translation must begin with")
    settings.add_options(verb, "decode")

    verb = add("evaluate", evaluate, "score a run on parallel text: BLEU, chrF, loss, perplexity, speed")
    verb.add_argument("run", type=Path)
    verb.add_argument("files", nargs="*", help="source and reference, or one .tsv (default: the test text of the run)")
    verb.add_argument("--json", action="store_true", help="print JSON for machines")
    settings.add_options(verb, "decode")

    verb = add("export", export, "write a run for another engine, and check that it translates as heedful does")
    verb.add_argument("run", type=Path)
    verb.add_argument("--to", choices=ENGINES[1:], required=True)
    verb.add_argument("--out", type=Path, help="folder (default: RUN/ctranslate2)")
    verb.add_argument("--quantization", default="float32", help="float32, int8, int16, float16, ... (default: float32)")
    verb.add_argument(
        "--files", nargs="+", help="source and reference to check with (default: the test text of the run)"
    )
    verb.add_argument("--sentences", type=int, default=500, help="how many of them (default: 500)")

    verb = add("inspect", inspect, "draw attention maps, the positional encoding, the learning rate")
    verb.add_argument("run", type=Path)
    verb.add_argument("sentence", nargs="?", help="a source sentence")
    verb.add_argument("--target", help="its translation (default: the model's own)")
    verb.add_argument("--layer", type=int, help="layer, from 1 (default: all)")
    verb.add_argument("--head", type=int, help="one head, from 1 (default: all on a sheet)")
    verb.add_argument("--kind", choices=("encoder self", "decoder self", "cross"), help="default: all three")
    verb.add_argument("--positions", action="store_true", help="draw the positional encoding")
    verb.add_argument("--schedule", action="store_true", help="draw the learning rate")
    verb.add_argument("--out", type=Path, help="folder for the figures (default: RUN/figures)")
    return parser


def quickstart(options, overrides):
    """Train on the phrasebook, translate, draw attention."""
    from heedful.generation.translator import load
    from heedful.inspection import AttentionMaps
    from heedful.translation import train as train_run

    began = time.monotonic()
    config = Config.from_toml(RECIPES / "quickstart.toml")
    if code := _watched(lambda: train_run(config, options.run, _say, force=True), options.run):
        return code
    translator = load(options.run)
    sentence = "Os meninos felizes não comeram o bolo da avó."
    maps = AttentionMaps(translator, sentence)
    sheet = maps.sheet(options.run / "figures" / "attention.png")
    _say(f"{sentence}  ->  {maps.translation}")
    _say(f"attention: {sheet}")
    _say(f'Now try:  echo "O gato preto bebe leite." | .venv/bin/heedful translate {options.run}')
    test, unseen = json.loads((options.run / "scores.json").read_text(encoding="utf-8"))[-2:]
    _say(
        f"quickstart: BLEU {test['bleu']:.2f} on unseen sentences, {unseen['bleu']:.2f} on unseen combinations of "
        f"words, in {time.monotonic() - began:.0f} s"
    )
    return 0


def train(options, overrides):
    """Train or resume."""
    from heedful import translation

    if bool(options.recipe) == bool(options.resume):
        raise InputError("Name a recipe to train, or a run folder after --resume.")
    if options.resume:
        from heedful.run import Run

        config = settings.override(Run.open(options.resume).config, overrides)
        return _watched(lambda: translation.resume(options.resume, _say, config), options.resume)
    config = settings.override(Config.from_toml(find_recipe(options.recipe)), overrides)
    if options.plan:
        corpus = translation.corpora(config)["train"]
        tokenizers = translation.train_tokenizers(config, corpus)
        pairs = translation.encode(corpus, *tokenizers, config.data.max_tokens)
        print(f"vocabulary: {', '.join(f'{len(t):,}' for t in dict.fromkeys(tokenizers))}")
        print(pairs.filtered)
        print(translation.plan_batches(config, pairs))
        return 0
    folder = options.run or translation.default_folder(config)
    return _watched(lambda: translation.train(config, folder, _say, options.force), folder)


def translate(options, overrides):
    """Translate standard input or files to standard output."""
    from rich.console import Console
    from rich.progress import Progress

    from heedful.data.corpus import read_lines
    from heedful.generation.translator import Translator
    from heedful.run import Run
    from heedful.translation import keep_compilations

    lines = _lines(options.files, read_lines)
    prefixes = _lines([options.prefixes], read_lines) if options.prefixes else None
    runs = [Run.open(path) for path in [options.run, *(options.others or [])]]
    decode = settings.given_options(runs[0].config, "decode", options)
    keep_compilations()
    if options.engine == "heedful":
        translator = Translator.from_runs(runs)
        translator.decode = decode
    else:
        from heedful.serving.engine import ctranslate2_translator

        if len(runs) > 1:
            raise InputError("CTranslate2 translates with one run: leave out --with, or use our own engine.")
        translator = ctranslate2_translator(runs[0], decode)
    tabs = options.scores or decode.n_best > 1  # several lines for one need its number
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("lines", total=None)
        found = translator.stream_candidates(lines, _warn, tabs, prefixes)
        for number, candidates in enumerate(found, start=1):
            for text, score in candidates:
                # A translation may contain what some programs take for the end of a line; one line in, one line out.
                line = " ".join(text.split("\n"))
                sys.stdout.write(f"{number}\t{score:.4f}\t{line}\n" if tabs else f"{line}\n")
            bar.advance(task)
        sys.stdout.flush()


def evaluate(options, overrides):
    """Score a run."""
    from heedful import translation
    from heedful.generation.translator import Translator
    from heedful.run import Run

    run = Run.open(options.run)
    corpus = _test_corpus(run, options.files)
    translation.keep_compilations()
    translator = Translator.from_run(run)
    translator.decode = settings.given_options(run.config, "decode", options)
    scores = translation.evaluate(run, corpus, translator)
    if options.json:
        print(json.dumps(scores, ensure_ascii=False))
        return
    for name in ("bleu", "chrf", "exact", "loss", "perplexity", "accuracy", "output_tokens_per_second"):
        print(f"{name:26s}{scores[name]:.4f}")
    for name, signature in scores["signatures"].items():
        print(f"{name + ' signature':26s}{signature}")
    print(f"BLEU {scores['bleu']:.2f}  chrF {scores['chrf']:.2f}  on {scores['sentences']:,} sentences")


def export(options, overrides):
    """Write a run for another engine, through the parity gate."""
    import itertools

    from heedful import translation
    from heedful.run import Run
    from heedful.serving.engine import EXPORTED
    from heedful.serving.export import export_checked

    run = Run.open(options.run)
    pairs = list(itertools.islice(_test_corpus(run, options.files), options.sentences))
    if not pairs:
        raise InputError("There is no text to check the export with.")
    translation.keep_compilations()
    export_checked(run, options.out or run.path / EXPORTED, pairs, options.quantization, _say)


def inspect(options, overrides):
    """Draw figures and print their paths."""
    from heedful.run import Run

    run = Run.open(options.run)
    if not (options.sentence or options.positions or options.schedule):
        raise InputError("Give a sentence, --positions or --schedule.")
    from heedful import inspection
    from heedful.training.optimizer import Schedule

    out = options.out or run.path / "figures"
    model, learning = run.config.model, run.config.train
    if options.positions:
        concatenated = model.positions == "sinusoidal_concatenated"
        print(inspection.plot_positions(out / "positions.png", model.d_model, concatenated=concatenated))
    if options.schedule:
        schedule = Schedule.from_config(learning, model.d_model)
        print(inspection.plot_schedule(out / "schedule.png", schedule, learning.updates))
    if options.sentence:
        from heedful.generation.translator import Translator

        maps = inspection.AttentionMaps(Translator.from_run(run), options.sentence, options.target)
        print(maps.translation)
        for kind in [options.kind] if options.kind else inspection.KINDS:
            for layer in [options.layer] if options.layer else range(1, maps.num_layers + 1):
                name = f"{kind.replace(' ', '-')}-layer{layer}" + (f"-head{options.head}" if options.head else "")
                print(maps.sheet(out / f"{name}.png", kind, layer, options.head))


def recipe_names():
    """Return the names of the recipes that come with the package."""
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def find_recipe(name):
    """Return the path of a recipe: a file, or one that comes with the package."""
    path = Path(name)
    if path.is_file():
        return path
    own = RECIPES / f"{path.stem}.toml"
    if path.suffix in ("", ".toml") and own.is_file():
        return own
    raise InputError(f"{name} does not exist, and is none of the recipes {', '.join(recipe_names())}.")


def _test_corpus(run, files):
    """Return the parallel text in `files`, or the test text of the run if none are given."""
    from heedful import translation
    from heedful.data.corpus import Corpus

    if files and len(files) > 2:
        raise InputError("Give a source file and a reference file, or one .tsv.")
    if files:
        return Corpus.from_files(files)
    parts = translation.corpora(run.config)
    if "test" not in parts:
        raise InputError("This run names no test text: give a source file and a reference file.")
    return parts["test"]


def _lines(files, read_lines):
    if files:
        for file in files:
            if not file.is_file():
                raise InputError(f"{file} does not exist.")
        return (line for file in files for line in read_lines(file))
    return _standard_input()


def _standard_input():
    for number, raw in enumerate(sys.stdin.buffer, start=1):
        try:
            yield raw.rstrip(b"\n").removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"standard input is not UTF-8: line {number}, byte {error.start}.") from error


def _watched(work, folder):
    """Run a training; a signal ends it with the exit code that shells expect."""
    from heedful.run import saved_states
    from heedful.training.signals import Interrupted

    try:
        work()
    except Interrupted as stop:
        print(f"heedful: {stop}", file=sys.stderr)
        return 128 + stop.signal_number
    except KeyboardInterrupt:
        last = saved_states(folder)[-1:]
        kept = f"; {last[0]} is kept. Go on with: heedful train --resume {folder}" if last else " before any training."
        print(f"heedful: stopped at once{kept}", file=sys.stderr)
        return 130
    return 0


def _say(text):
    print(text, flush=True)


def _warn(text):
    print(f"heedful: warning: {text}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
