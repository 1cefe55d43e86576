"""The verbs that train: quickstart and train."""

import json
import signal
import sys
import time
from pathlib import Path

from heedful import settings, workflows
from heedful.config import Config
from heedful.errors import InputError
from heedful.inspection import AttentionMaps
from heedful.loading import load
from heedful.progress import note
from heedful.recipes import find_recipe
from heedful.run import CONFIG, Run, saved_states
from heedful.scores.comparison import compare
from heedful.training.signals import Interrupted
from heedful.verbs.lines import tell


def quickstart(options):
    """Train on the phrasebook, translate, draw attention."""
    began = time.monotonic()
    config = Config.from_toml(find_recipe("quickstart"))
    earlier = (options.run / CONFIG).is_file()
    if earlier and Config.from_json(options.run / CONFIG).name != config.name:
        raise InputError(f"{options.run} holds another run, which quickstart would overwrite: choose another --run.")
    force = earlier or options.force
    if code := _watched(lambda: workflows.train(config, options.run, tell, force), options.run):
        return code
    translator = load(options.run)
    sentence = "Os meninos felizes não comeram o bolo da avó."
    maps = AttentionMaps(translator, sentence)
    sheet = maps.sheet(options.run / "figures" / "attention.png")
    tell(f"{sentence}  ->  {maps.translation}")
    tell(f"attention: {sheet}")
    command = "python -m heedful" if Path(sys.argv[0]).name == "__main__.py" else sys.argv[0]
    tell(f'Now try:  echo "O gato preto bebe leite." | {command} translate {options.run}')
    test, unseen = json.loads((options.run / "scores.json").read_text(encoding="utf-8"))[-2:]
    tell(
        f"quickstart: BLEU {test['bleu']:.2f} on unseen sentences, {unseen['bleu']:.2f} on unseen combinations of "
        f"words, in {time.monotonic() - began:.0f} s"
    )
    return 0


def train(options):
    """Train or resume."""
    if bool(options.recipe) == bool(options.resume):
        raise InputError("Name a recipe to train, or a run folder after --resume.")
    if options.seeds and (options.resume or options.plan or len(set(options.seeds)) < len(options.seeds)):
        raise InputError("--seeds takes different seeds, and goes with neither --resume nor --plan.")
    if options.resume:
        return _resume(options)
    if options.verify:
        raise InputError("--verify replays what a run has done: it goes with --resume.")
    recipe = find_recipe(options.recipe)
    config = settings.of_recipe(recipe, options.overrides)
    if options.plan:
        return workflows.plan(config, tell)
    origins, folder = settings.origins(recipe, options.overrides), options.run or workflows.default_folder(config)
    if options.seeds:
        return _train_seeds(options, config, origins, folder)
    return _watched(lambda: workflows.train(config, folder, tell, options.force, origins), folder)


def _resume(options):
    if options.plan or options.run or options.force:
        raise InputError("--resume goes on in the folder that it names: with neither --plan, --run nor --force.")
    if options.verify and options.overrides:
        raise InputError("--verify replays with the settings that the run has: change none in the same call.")
    config = settings.override(Run.open(options.resume).config, options.overrides)
    origins = dict.fromkeys(settings.origins(None, options.overrides), "command line, on resuming")
    return _watched(lambda: workflows.resume(options.resume, tell, config, options.verify, origins), options.resume)


def _train_seeds(options, config, origins, folder):
    """Train once with each seed, into a folder with the seed after its name, and compare."""
    folder = folder.resolve() if folder.name in ("", "..") else folder
    if not folder.name:
        raise InputError(f"--seeds trains into FOLDER-seedN, and {folder} has no name: choose another --run.")
    folders = [folder.with_name(f"{folder.name}-seed{seed}") for seed in options.seeds]
    for seed, place in zip(options.seeds, folders, strict=True):  # all of them before the first takes its time
        _seeded(config, seed)  # which may refuse it
        workflows.require_free(place, options.force)
    for seed, place in zip(options.seeds, folders, strict=True):
        seeded, first = _seeded(config, seed), place == folders[0]
        tell(f"seed {seed}: {place}")
        own = origins | {"train.seed": "command line, --seeds"}
        if code := _watched(lambda: workflows.train(seeded, place, tell, options.force, own, first), place):  # noqa: B023
            return code
        config = Run.open(place).config  # with what the first training measured: it counts for all
    for line in compare([Run.open(place) for place in folders]).lines():
        tell(line)
    return 0


def _seeded(config, seed):
    return settings.override(config, ["--train.seed", str(seed)])


def _watched(work, folder):
    """Run a training; a signal ends it with the exit code that shells expect."""
    received = []

    def leave(number, frame):
        received.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, leave)  # as Ctrl-C does; while updates are made, `Signals` saves first
    try:
        work()
    except Interrupted as stop:
        note(f"heedful: {stop}")
        return 128 + stop.signal_number
    except KeyboardInterrupt:
        last = saved_states(folder)[-1:]
        kept = f"{last[0]} is kept" if last else "no update was made yet"
        advice = f". Go on with: heedful train --resume {folder}" if (folder / CONFIG).is_file() else ""
        note(f"heedful: stopped at once; {kept}{advice}")
        return 128 + (received or [signal.SIGINT])[0]
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0
