"""The verb that measures heedful beside what people use today."""

from heedful import settings
from heedful.bench import decoding, training
from heedful.errors import InputError
from heedful.jobs.translation import corpora
from heedful.recipes import find_recipe
from heedful.verbs.lines import say


def train(options):
    """Compare the speed of training."""
    there = training.installed()
    if missing := [engine for engine in options.engines or () if engine not in there]:
        raise InputError(f"Not installed here: {', '.join(missing)}. There is {', '.join(there)}.")
    config = settings.of_recipe(find_recipe(options.recipe), options.overrides)
    if config.task != "translate" or not config.tokenizer.joint:
        raise InputError("Engines are compared on a translation recipe with a joint vocabulary.")
    corpora(config)  # whose text may be missing
    work = {name: getattr(options, name) for name in ("recipe", "size", "batch_tokens", "updates")}
    work["settings"] = options.overrides
    engines = dict.fromkeys([training.OWN, *(options.engines or there)])
    medians = training.compare(list(engines), options.rounds, work, say)
    say(f"size {options.size}, {options.batch_tokens:,} tokens a batch: {training.summary(medians)}")


def decode(options):
    """Compare the speed of decoding."""
    decoding.compare(options, say)
