"""The verb that brings models of others home: import."""

from heedful.pretrained import import_model
from heedful.verbs.lines import say


def import_pretrained(options):
    """Make a run of a pretrained model."""
    run = import_model(options.source, options.run, options.tokenizer, options.trust)
    verb = "embed" if run.config.model.untrained_head else run.config.task
    say(f"{run.path}: {len(run.tokenizer):,} tokens; try: heedful {verb} {run.path} ...")
