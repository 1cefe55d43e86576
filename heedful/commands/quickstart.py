"""heedful quickstart: train on the phrasebook, translate, draw attention."""

import sys
import time
from pathlib import Path


def add_arguments(parser):
    """Add the arguments of the command."""
    parser.add_argument(
        "--run", type=Path, default=Path("runs/quickstart"), help="run folder (an earlier quickstart is overwritten)"
    )
    parser.add_argument("--force", action="store_true", help="overwrite files of the same names that belong to no run")


def run(options):
    """Run the command."""
    from heedful import workflows
    from heedful.commands.terminal import report_progress
    from heedful.commands.train import stoppable
    from heedful.config import Config
    from heedful.errors import InputError
    from heedful.inspection.figures import draw_attention
    from heedful.inspection.translation import TranslationInspection
    from heedful.loading import load
    from heedful.recipes import find_recipe
    from heedful.run import CONFIG, Run
    from heedful.scores.provenance import newest_scores

    began = time.monotonic()
    config = Config.from_toml(find_recipe("quickstart"))
    earlier = (options.run / CONFIG).is_file()
    if earlier and Config.from_json(options.run / CONFIG).name != config.name:
        raise InputError(f"{options.run} holds another run, which quickstart would overwrite: choose another --run.")
    force = earlier or options.force
    if code := stoppable(lambda: workflows.train(config, options.run, report_progress, force), options.run):
        return code
    sentence = "Os meninos felizes não comeram o bolo da avó."
    maps = TranslationInspection.of(load(options.run), sentence)
    sheet = draw_attention(options.run / "figures" / "attention.png", maps, "cross", maps.num_layers)
    report_progress(f"{sentence}  ->  {maps.translation}")
    report_progress(f"attention: {sheet}")
    command = "python -m heedful" if Path(sys.argv[0]).name == "__main__.py" else sys.argv[0]
    report_progress(f'Now try:  echo "O gato preto bebe leite." | {command} translate {options.run}')
    scores = newest_scores(Run.open(options.run))
    report_progress(
        f"quickstart: BLEU {scores['phrasebook/test']['bleu']:.2f} on unseen sentences, "
        f"{scores['phrasebook/unseen']['bleu']:.2f} on unseen combinations of words, "
        f"in {time.monotonic() - began:.0f} s"
    )
    return 0
