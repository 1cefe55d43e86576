"""All that a run has to prove, and the proving of it."""

import gc
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from heedful import backend
from heedful.errors import InputError
from heedful.selfcheck import learning, reading, writing
from heedful.selfcheck.subject import Subject


@dataclass(frozen=True)
class Check:
    """One thing to prove.

    Args:
        claim: what is true if it passes.
        measure: from a `Subject` to what was measured and the most allowed, and more words if there are any; its name
            is that of the check.
        where: files to look at if it fails.
        writing: whether it is about models that write text.
        fresh: whether it is about weights that have not been trained.
        needs: an array of the batch without which it says nothing.
    """

    claim: str
    measure: Callable
    where: str
    writing: bool = False
    fresh: bool = False
    needs: str = "labels"

    @property
    def name(self):
        """By which a failure is known."""
        return self.measure.__name__

    def concerns(self, subject):
        """Whether there is anything to check."""
        fits = self.needs in subject.whole_batch and not (self.fresh and subject.trained)
        return fits and (subject.task.writes or not self.writing)


CHECKS = (
    Check("what is to be said is the next token, the hidden token, or the class",
          learning.labels, "data/examples.py, data/language.py, data/masking.py, data/labels.py"),
    Check("no position sees what comes after it", reading.future, "layers/masks.py, models/", writing=True),
    Check("padding cannot be read", reading.padding, "layers/masks.py, models/"),
    Check("labels without weight do not count", reading.weightless, "training/loss.py"),
    Check("a text alone is the same text in a batch", reading.alone, "layers/, models/"),
    Check("documents in one row cannot see each other",
          reading.documents, "layers/masks.py, models/causal_lm.py", needs="segments"),
    Check("pairs in one row cannot see each other",
          reading.pairs, "layers/masks.py, models/transformer.py", needs="source_segments"),
    Check("the order of the tokens matters", reading.order, "layers/positions.py, layers/inputs.py"),
    Check("attention is softmax(q k / sqrt(H)) v", reading.attention, "layers/attention.py"),
    Check("a saved and loaded model is the same model", reading.stored, "run.py, config.py"),
    Check("decoding with caches is decoding without",
          writing.cached, "generation/search.py, layers/attention.py", writing=True),
    Check("a beam's scores are the log-probabilities of its texts",
          writing.beams, "generation/strategies.py", writing=True),
    Check("the first loss is near that of guessing",
          learning.start, "layers/embeddings.py, the initial weights", fresh=True),
    Check("two halves of a batch have the gradient of the whole",
          learning.pieces, "training/objective.py, training/loss.py"),
    Check("a gradient reaches every weight that is to learn, and no other",
          learning.gradients, "models/, train.freeze"),
    Check("dropout is on in training if it is asked for, and else nothing is random",
          learning.dropout, "models/: is `training` handed down?"),
    Check(f"the loss of one batch falls within {learning.UPDATES} updates",
          learning.falls, "training/optimizer.py, training/objective.py"),
)  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """What a check has measured."""

    check: Check
    measured: float
    allowed: float
    details: str = ""

    @property
    def passed(self):
        """Whether what was measured is allowed; what is not a number is not."""
        return not math.isnan(self.measured) and self.measured <= self.allowed

    def as_dict(self):
        """Return the finding for machines; what JSON has no number for is None."""
        measured, allowed = (x if math.isfinite(x) else None for x in (self.measured, self.allowed))
        own = {"check": self.check.name, "passed": self.passed, "measured": measured, "allowed": allowed}
        return own | {"details": self.details, "where": self.check.where}

    def __str__(self):
        if self.passed:
            return f"ok      {self.check.name:11s} {self.check.claim}"
        details = f": {self.details}" if self.details else ""
        return (
            f"FAILED  {self.check.name:11s} {self.check.claim}: measured {self.measured:.3g}, at most "
            f"{self.allowed:.3g} allowed{details}. Look at {self.check.where}."
        )


def check(run, batch, frozen=(), trained=False, report=None, only=None):
    """Check a run on some of its examples; return the `Finding`s.

    Args:
        run: a `Run`; its folder need not exist unless `trained`.
        batch: a batch of the examples that it is trained on.
        frozen: beginnings of the names of weights that must not learn.
        trained: check the weights in its folder, not fresh ones.
        report: called with each finding as soon as it is made.
        only: names of the checks to make; None: all.
    """
    subject = Subject(run, batch, frozen, trained)
    findings = []
    with backend.precise():
        for one in CHECKS:
            if one.concerns(subject) and (only is None or one.name in only):
                findings.append(Finding(one, *one.measure(subject)))
                if report:
                    report(findings[-1])
    return findings


def require(run, batch, frozen, report):
    """Check a run before its training.

    Raises:
        InputError: a check failed; says which, by how much, and where to look.
    """
    began = time.monotonic()
    findings = check(run, batch, frozen)
    gc.collect()  # its models lie in circles of references, and training needs the memory
    failed = [finding for finding in findings if not finding.passed]
    if failed:
        raise InputError(
            "The self-check found what makes training pointless (all the same: --train.check false --force):\n"
            + "\n".join(map(str, failed))
        )
    report(f"self-check: {len(findings)} checks passed in {time.monotonic() - began:.0f} s")
