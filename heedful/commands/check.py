"""heedful check: check that a run reads, writes and learns correctly."""

import argparse
import json
import time

from heedful.commands.arguments import add_json, add_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_run(parser)
    add_json(parser)
    parser.epilog = "Exit code 1 if a check fails. Training runs the same checks before its first update (train.check)."


def run(options: argparse.Namespace) -> int:
    """Run the command; return 1 if a check has failed."""
    from heedful.commands.terminal import print_line
    from heedful.runs.run import WEIGHTS, Run
    from heedful.workflows.selfcheck.check import check

    run = Run.open(options.run)
    batch, frozen = _examples(run)
    trained = (run.path / WEIGHTS).is_file()
    if not trained and run.checkpoints.paths():
        run.refuse_larger_than()  # the config could ask for a far larger model than its states hold
    began = time.monotonic()
    report = None if options.json else lambda finding: print_line(str(finding))
    findings = check(run, batch, frozen, trained, report)
    failed = [finding for finding in findings if not finding.passed]
    if options.json:
        print(json.dumps([finding.as_dict() for finding in findings], indent=2))
    else:
        weights = "the run's own weights" if trained else "fresh weights"
        print_line(
            f"{len(findings) - len(failed)} of {len(findings)} checks passed, on {weights}, "
            f"in {time.monotonic() - began:.0f} s"
        )
    return 1 if failed else 0


def _examples(run):
    """Return a batch of a run's text (random tokens if it names none), and name prefixes of its frozen weights."""
    from heedful.workflows import Training
    from heedful.workflows.selfcheck.random_batch import random_batch

    if run.config.data.corpus == "files" and not run.config.data.train:
        return random_batch(run), ()
    training = Training(run, report=lambda line: None)
    return training.examples.batch(0), training.frozen
