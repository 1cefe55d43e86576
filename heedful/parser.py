"""What the verbs of the command line are called with: a parser for each."""

import argparse
from pathlib import Path

from heedful import __version__, settings
from heedful.config import OF_SOURCE, SIZES
from heedful.plugins import metric_names, task_names
from heedful.recipes import recipe_names

ENGINES = ("heedful", "ctranslate2")
TEXTS = {
    "nargs": "*", "default": [], "type": Path, "metavar": "FILE",
    "help": "text files, plain or .gz (default: standard input)",
}  # fmt: skip


def new_parser():
    """Return the parser of a whole command line; it puts into `verb` what does it, as module.function of `verbs`."""
    parser = argparse.ArgumentParser(
        prog="heedful",
        description="Train, look into and ship Transformers.",
        epilog="Environment: HEEDFUL_DATA, the folder of relative text paths (default ./data). HEEDFUL_CACHE, where "
        "encoded text and compiled programs are kept (default: heedful in XDG_CACHE_HOME or ~/.cache). KERAS_BACKEND: "
        "jax (the default), tensorflow or torch.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    add = _subparsers(parser, "verbs", "VERB")
    for verb in (
        _quickstart, _train, _translate, _generate, _fill, _classify, _embed, _evaluate, _doctor, _compare, _explain,
        _diff, _check, _export, _import, _bench, _inspect,
    ):  # fmt: skip
        verb(add)
    return parser


def _subparsers(parser, title, metavar):
    """Return how a verb is added to a parser: a function of its name, what does it and what is said of it."""
    verbs = parser.add_subparsers(title=title, metavar=metavar, required=True, parser_class=_VerbParser)

    def add(name, function, text, epilog=None):
        formatter = argparse.RawDescriptionHelpFormatter
        verb = verbs.add_parser(name, help=text, description=text, epilog=epilog, formatter_class=formatter)
        verb.set_defaults(verb=function)
        return verb

    return add


def _quickstart(add):
    verb = add(
        "quickstart",
        "training.quickstart",
        "train on the built-in Portuguese-English corpus, translate, show attention",
    )
    verb.add_argument(
        "--run", type=Path, default=Path("runs/quickstart"), help="run folder (an earlier quickstart is overwritten)"
    )
    verb.add_argument("--force", action="store_true", help="overwrite files of such names that are no run's")


def _train(add):
    listing = "settings (also keys of a recipe): --SECTION.KEY VALUE\n" + "\n".join(settings.describe())
    listing += f"\n\ntasks (the key `task` of a recipe): {', '.join(task_names())}"
    verb = add("train", "training.train", "train a run from a recipe, or resume one", epilog=listing)
    verb.add_argument("recipe", nargs="?", help=f"a TOML file, or one of {', '.join(recipe_names())}")
    verb.add_argument("--run", type=Path, help="run folder (default: runs/NAME)")
    verb.add_argument("--resume", type=Path, metavar="RUN", help="continue the run in this folder, exactly")
    verb.add_argument(
        "--seeds", nargs="+", type=int, metavar="SEED", help="train once with each seed, into RUN-seedN, and compare"
    )
    verb.add_argument(
        "--verify", action="store_true", help="with --resume: replay the last updates first, and compare bit for bit"
    )
    verb.add_argument("--force", action="store_true", help="overwrite a run folder that holds a run")
    verb.add_argument("--plan", action="store_true", help="print vocabulary, batch shapes, time and memory, and stop")


def _translate(add):
    verb = add("translate", "translation.translate", "translate lines: one line out for each line in")
    verb.add_argument("run", type=Path, help="run folder")
    verb.add_argument("files", **TEXTS)
    verb.add_argument("--with", dest="others", nargs="+", type=Path, metavar="RUN", help="more runs, which vote too")
    verb.add_argument("--engine", choices=ENGINES, default="heedful", help="what searches; export for it first")
    verb.add_argument(
        "--scores",
        action="store_true",
        help="write line number, score and text of each candidate, by tabs (--n-best does so too)",
    )
    verb.add_argument(
        "--prefixes", type=Path, metavar="FILE", help="what each translation must begin with, a line each"
    )
    settings.add_options(verb, "decode")


def _generate(add):
    verb = add("generate", "text.generate", "continue prompts with a language model")
    verb.add_argument("run", type=Path, help="run folder")
    verb.add_argument(
        "prompts", nargs="*", default=[], metavar="PROMPT", help="texts to continue (default: lines of standard input)"
    )
    verb.add_argument(
        "--scores",
        action="store_true",
        help="write the log-probability of each text, in nats, before it (with a beam divided by a length penalty)",
    )
    settings.add_options(verb, "decode", without=OF_SOURCE)


def _fill(add):
    verb = add("fill", "text.fill", "say what could stand at each [MASK] of a text")
    verb.add_argument("run", type=Path, help="run folder")
    verb.add_argument("text", nargs="?", help="a text with [MASK] in it (default: lines of standard input)")
    verb.add_argument("--count", type=_count, default=5, help="candidates for each gap (default: 5)")
    verb.add_argument("--json", action="store_true", help="print JSON for machines, a line a text")


def _classify(add):
    verb = add("classify", "text.classify", "write a class for each line")
    verb.add_argument("run", type=Path, help="run folder")
    verb.add_argument("files", **TEXTS)
    verb.add_argument("--scores", action="store_true", help="write the probability after the class, separated by a tab")


def _embed(add):
    verb = add("embed", "text.embed", "write a vector for each line: numbers, by tabs")
    verb.add_argument("run", type=Path, help="a run of task fill")
    verb.add_argument("files", **TEXTS)
    verb.add_argument("--pooling", default="mean", help="the mean of all tokens' vectors, or that of the first")


def _evaluate(add):
    verb = add(
        "evaluate", "evaluation.evaluate", "score a run: BLEU and chrF, loss and bits per byte, or accuracy and F1"
    )
    verb.add_argument("run", type=Path, help="run folder")
    verb.add_argument(
        "files", nargs="*", default=[], metavar="FILE",
        help="text as the run was trained on (default: the test text of the run)",
    )  # fmt: skip
    verb.add_argument("--json", action="store_true", help="print JSON for machines")
    settings.add_options(verb, "decode")


def _doctor(add):
    verb = add(
        "doctor",
        "examining.doctor",
        "examine text: what is misaligned, repeated, in the wrong language, broken, leaked from the test text, ...",
        epilog="Exit code 1 if training would refuse the text. Training makes the same examination (train.examine).",
    )
    verb.add_argument(
        "text",
        nargs="+",
        help="a recipe or a run folder, or files: two parallel ones, a .tsv, or files with a text on each line",
    )
    verb.add_argument("--valid", nargs="+", default=[], metavar="FILE", help="validation text, in the same form")
    verb.add_argument("--test", nargs="+", default=[], metavar="FILE", help="test text, in the same form")
    verb.add_argument("--labelled", action="store_true", help="each line is a label, a tab or a blank, and a text")
    verb.add_argument("--ignore", nargs="+", default=[], metavar="KIND", help="kinds to say and do nothing about")
    verb.add_argument("--fix", type=Path, metavar="FOLDER", help="write a cleaned copy, and a report of what was done")
    verb.add_argument("--json", action="store_true", help="print JSON for machines")


def _compare(add):
    verb = add(
        "compare",
        "evaluation.compare",
        "put the scores of runs side by side: intervals, differences, and whether they could be chance",
        epilog="Runs that differ in nothing but the seed are one row. Unlike things are refused: another text, other\n"
        "settings of decoding, other signatures.",
    )
    verb.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders")
    verb.add_argument("--metric", help=f"{', '.join(metric_names())} (default: the usual one of the task)")
    verb.add_argument("--json", action="store_true", help="print JSON for machines")


def _explain(add):
    verb = add("explain", "configuration.explain", "say what a setting means: heedful explain train.learning_rate")
    verb.add_argument("setting", help="SECTION.KEY, or a section for all of it")
    verb.add_argument("where", nargs="?", help="a run folder or a recipe, whose value is said too")


def _diff(add):
    verb = add("diff", "configuration.diff", "list the settings in which two runs or recipes differ")
    verb.add_argument("first", help="a run folder or a recipe")
    verb.add_argument("second", help="another")


def _check(add):
    verb = add(
        "check",
        "checking.check",
        "prove that a run reads, writes and learns as it should: masks, padding, caches, gradients, ...",
        epilog="Exit code 1 if a check fails. Training makes the same checks before its first update (train.check).",
    )
    verb.add_argument("run", type=Path, help="run folder")
    verb.add_argument("--json", action="store_true", help="print JSON for machines")


def _export(add):
    verb = add(
        "export", "translation.export", "write a run for another engine, and check that it translates as heedful does"
    )
    verb.add_argument("run", type=Path, help="run folder")
    verb.add_argument("--to", choices=ENGINES[1:], required=True)
    verb.add_argument("--out", type=Path, help="folder (default: RUN/ctranslate2)")
    verb.add_argument("--quantization", default="float32", help="float32, int8, int16, float16, ... (default: float32)")
    verb.add_argument(
        "--files", nargs="+", help="source and reference to check with (default: the test text of the run)"
    )
    verb.add_argument("--sentences", type=_count, default=500, help="how many of them (default: 500)")


def _import(add):
    verb = add("import", "pretrained.import_pretrained", "make a run of a pretrained BERT, GPT-2 or Marian")
    verb.add_argument(
        "source",
        help="a folder in the layout of Hugging Face, the name of a model on the hub, or a .keras file of our models",
    )
    verb.add_argument("run", type=Path, help="the new run folder")
    verb.add_argument(
        "--tokenizer",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="for a .keras file: tokenizer.json, or two",
    )
    verb.add_argument(
        "--trust", action="store_true", help="let Keras load a .keras or .h5 file, which can run its author's code"
    )


def _bench(add):
    verb = add("bench", "", "measure heedful beside what people use today")
    kinds = _subparsers(verb, "what is measured", "WHAT")
    text = "training speed and memory beside PyTorch loops, transformers, Eole, JoeyNMT and KerasHub, where installed"
    note = "settings of data, tokenizer, dropout and precision as in `heedful train`: --SECTION.KEY VALUE"
    verb = kinds("train", "benchmarks.train", text, epilog=note)
    verb.add_argument("recipe", nargs="?", default="multi30k-de-en", help="of a translation (default: multi30k-de-en)")
    verb.add_argument("--size", default="tutorial", choices=tuple(SIZES), help="of the model (default: tutorial)")
    verb.add_argument("--batch-tokens", type=_count, default=4096, help="of a batch (default: 4096)")
    verb.add_argument(
        "--engines",
        nargs="+",
        metavar="NAME",
        help="torch, tutorial_loop, transformers, eole, joeynmt, keras_hub (default: all)",
    )
    verb.add_argument("--rounds", type=_count, default=3, help="how often each is measured (default: 3)")
    verb.add_argument("--updates", type=_count, default=20, help="of each round (default: 20)")
    verb = kinds("decode", "benchmarks.decode", "decoding speed beside CTranslate2")
    verb.add_argument("run", type=Path, help="a trained translator with test text")
    verb.add_argument("--rounds", type=_count, default=5, help="how often each row is measured (default: 5)")
    verb.add_argument("--sentences", type=_count, default=1000, help="that are translated (default: 1000)")
    verb.add_argument("--quantization", default="float32", help="of CTranslate2's weights (default: float32)")
    verb.add_argument(
        "--precision", nargs="+", default=["float32"], choices=("float32", "bfloat16", "int8"),
        help="of heedful's products, one or several (default: float32)",
    )  # fmt: skip
    verb.add_argument(
        "--sizes", nargs="+", choices=("trained", "base"), default=["trained", "base"],
        help="the run's own weights, random ones of size base, or both (default)",
    )  # fmt: skip


def _inspect(add):
    verb = add("inspect", "translation.inspect", "draw attention maps, the positional encoding, the learning rate")
    verb.add_argument("run", type=Path, help="run folder")
    verb.add_argument("sentence", nargs="?", help="a source sentence")
    verb.add_argument("--target", help="its translation (default: the model's own)")
    verb.add_argument("--layer", type=_count, help="layer, from 1 (default: all)")
    verb.add_argument("--head", type=_count, help="one head, from 1 (default: all on a sheet)")
    verb.add_argument("--kind", choices=("encoder self", "decoder self", "cross"), help="default: all three")
    verb.add_argument("--positions", action="store_true", help="draw what is added for positions")
    verb.add_argument("--schedule", action="store_true", help="draw the learning rate")
    verb.add_argument("--out", type=Path, help="folder for the figures (default: RUN/figures)")


class _VerbParser(argparse.ArgumentParser):
    """Accepts positional arguments anywhere among options; Python 3.11 by itself accepts them before options only."""

    _intermixed = False

    def parse_known_args(self, args=None, namespace=None):
        if self._intermixed or self._subparsers is not None:
            return super().parse_known_args(args, namespace)
        self.usage = _usage(self)
        if "--" in (args or ()):  # all that follows is text
            return super().parse_known_args(args, namespace)
        self._intermixed = True  # what is called now calls this again
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._intermixed = False


def _usage(verb):
    """Return how a verb is called: options come last, for those that take several values would take the rest too."""
    forms = {None: "{0}", "?": "[{0}]", "*": "[{0} ...]", "+": "{0} [{0} ...]"}
    named = [action for action in verb._actions if not action.option_strings]
    parts = [forms[action.nargs].format(action.metavar or action.dest.upper()) for action in named]
    return " ".join([verb.prog, *parts, "[options]"])


def _count(text):
    """Return a number of things, of which there must be one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)
