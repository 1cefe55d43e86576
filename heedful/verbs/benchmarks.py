"""The verb that measures heedful beside what people use today."""

import tempfile
from pathlib import Path

from heedful.bench import decoding, training
from heedful.bench.preparation import prepare
from heedful.errors import InputError
from heedful.verbs.lines import tell


def train(options):
    """Compare the speed of training."""
    there = training.installed()
    if missing := [engine for engine in options.engines or () if engine not in there]:
        raise InputError(f"Not installed here: {', '.join(missing)}. There is {', '.join(there)}.")
    work = prepare(options.recipe, options.overrides, options.size, options.batch_tokens)
    engines = dict.fromkeys([training.OWN, *(options.engines or there)])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "work"
        work.save(path)
        arguments = {"path": str(path), "updates": options.updates}
        medians = training.compare(list(engines), options.rounds, arguments, tell)
    tell(f"size {options.size}, {options.batch_tokens:,} tokens a batch: {training.summary(medians)}")


def decode(options):
    """Compare the speed of decoding."""
    decoding.compare(options, tell)
