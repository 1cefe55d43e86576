"""heedful bench train: compare training speed and memory with other toolkits."""

import tempfile
from pathlib import Path

from heedful.commands.arguments import count
from heedful.config import SIZES

TAKES_SETTINGS = True


def add_arguments(parser):
    """Add the arguments of the command."""
    parser.add_argument(
        "recipe", nargs="?", default="multi30k-de-en", help="a translation recipe (default: multi30k-de-en)"
    )
    parser.add_argument("--size", default="tutorial", choices=tuple(SIZES), help="model size (default: tutorial)")
    parser.add_argument("--batch-tokens", type=count, default=4096, help="tokens per batch (default: 4096)")
    parser.add_argument(
        "--engines", nargs="+", metavar="NAME",
        help="torch, tutorial_loop, transformers, eole, joeynmt, keras_hub (default: all that are installed)",
    )  # fmt: skip
    parser.add_argument("--rounds", type=count, default=3, help="measurements per engine (default: 3)")
    parser.add_argument("--updates", type=count, default=20, help="updates per round (default: 20)")
    parser.epilog = "Settings of data, tokenizer, dropout and precision as in `heedful train`: --SECTION.KEY VALUE."


def run(options):
    """Run the command."""
    from heedful.bench import training
    from heedful.bench.preparation import prepare
    from heedful.commands.terminal import report_progress
    from heedful.errors import InputError

    there = training.installed()
    if missing := [engine for engine in options.engines or () if engine not in there]:
        raise InputError(f"Not installed here: {', '.join(missing)}. Installed: {', '.join(there)}.")
    work = prepare(options.recipe, options.overrides, options.size, options.batch_tokens)
    engines = dict.fromkeys([training.OWN, *(options.engines or there)])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "work"
        work.save(path)
        arguments = {"path": str(path), "updates": options.updates}
        medians = training.compare(list(engines), options.rounds, arguments, report_progress)
    report_progress(f"size {options.size}, {options.batch_tokens:,} tokens a batch: {training.summary(medians)}")
