"""The verb that lets a run prove itself."""

import json
import time

from heedful.run import WEIGHTS, Run
from heedful.selfcheck.check import check as check_run
from heedful.selfcheck.random_batch import random_batch
from heedful.verbs.lines import tell
from heedful.workflows import Training


def check(options):
    """Check a run; return 1 if anything failed."""
    run = Run.open(options.run)
    batch, frozen = _what_it_learns_from(run)
    trained = (run.path / WEIGHTS).is_file()
    if not trained and run.states():
        run.refuse_more_than_kept()  # fresh weights are made as the config says
    began = time.monotonic()
    report = None if options.json else lambda finding: tell(str(finding))
    findings = check_run(run, batch, frozen, trained, report)
    failed = [finding for finding in findings if not finding.passed]
    if options.json:
        print(json.dumps([finding.as_dict() for finding in findings], indent=2))
    else:
        weights = "the run's own weights" if trained else "fresh weights"
        tell(
            f"{len(findings) - len(failed)} of {len(findings)} checks passed, on {weights}, "
            f"in {time.monotonic() - began:.0f} s"
        )
    return 1 if failed else 0


def _what_it_learns_from(run):
    """Return a batch of a run's text, or of random tokens if it names none, and the names of what is frozen."""
    if run.config.data.corpus == "files" and not run.config.data.train:
        return random_batch(run), ()
    training = Training(run, report=lambda line: None)
    return training.examples.batch(0), training.frozen
