"""heedful quickstart: train on the phrasebook, translate, draw attention."""

import argparse
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.config.settings import COMMAND_LINE

if TYPE_CHECKING:
    from heedful.runs.run import Run

SENTENCE = "Os meninos felizes não comeram o bolo da avó."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "--run", type=Path, default=Path("runs/quickstart"), help="run folder (an earlier quickstart is overwritten)"
    )
    parser.add_argument("--force", action="store_true", help="overwrite any run, and files of the same names")


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    from heedful import workflows
    from heedful.commands.terminal import report_progress
    from heedful.commands.train import stoppable
    from heedful.config import Config
    from heedful.config.recipes import find_recipe
    from heedful.core.errors import InputError
    from heedful.inspection.figures import draw_attention
    from heedful.inspection.translation import TranslationInspection
    from heedful.runs.loading import load
    from heedful.runs.run import CONFIG, Run
    from heedful.runs.scores.provenance import newest_scores

    began = time.monotonic()
    config = Config.from_toml(find_recipe("quickstart"))
    earlier = (options.run / CONFIG).is_file()
    if earlier and not options.force and _is_another(Run.open(options.run), config.name):
        raise InputError(
            f"{options.run} holds another run, which quickstart would overwrite: choose another --run, or give --force."
        )
    report_progress(
        f"Training a small Portuguese-English Transformer in {options.run}: about two minutes on two CPU cores.\n"
        "Its text is a built-in phrasebook. The first lines describe the text and its batches; each validation then\n"
        "shows the loss, BLEU, and three translations with their references.\n"
    )
    force = earlier or options.force
    if code := stoppable(lambda: workflows.train(config, options.run, report_progress, force), options.run):
        return code
    inspection = TranslationInspection.of(load(options.run), SENTENCE)
    sheet = draw_attention(
        options.run / "figures" / "attention.png", inspection, "cross", inspection.num_layers("cross")
    )
    scores = newest_scores(Run.open(options.run))
    folder = shlex.quote(str(options.run))
    command = "python -m heedful" if Path(sys.argv[0]).name == "__main__.py" else sys.argv[0]
    report_progress(f"""
{SENTENCE}  ->  {inspection.translation}

quickstart: BLEU {scores["phrasebook/test"]["bleu"]:.2f} on unseen sentences, \
{scores["phrasebook/unseen"]["bleu"]:.2f} on unseen combinations of words, in {time.monotonic() - began:.0f} s
attention:  {sheet} shows what each head read for each word

Go on with
    echo "O gato preto bebe leite." | {command} translate {folder}
    {command} inspect {folder} "A menina leu a carta no jardim."
    {command} data list
How it works, word by word: {command} page {folder} writes a page to open in a browser""")
    return 0


def _is_another(earlier: "Run", name: str) -> bool:
    """Return whether a run is not what quickstart makes: it has another name, or settings from the command line."""
    return earlier.config.name != name or any(origin.startswith(COMMAND_LINE) for origin in earlier.origins().values())
