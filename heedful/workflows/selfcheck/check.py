"""The table of checks, and the code that runs them."""

import gc
import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from heedful import backend
from heedful.core.errors import InputError
from heedful.core.progress import progress_bar
from heedful.runs.run import Run
from heedful.workflows.selfcheck import learning, reading, writing
from heedful.workflows.selfcheck.subject import Subject

NO_CAUSAL_MASK = "causal_mask", False


@dataclass(frozen=True)
class Check:
    """One check of a run.

    Args:
        claim: what holds if it passes.
        measure: function from a `Subject` to the measured value, the largest allowed value, and details if any; its
            name is the name of the check.
        where: files to look at if it fails.
        writing: whether it applies only to models that generate text.
        fresh: whether it applies only to untrained weights.
        needs: array that a batch must have for the check to apply.
        adapted: whether it applies only to a training of adapters.
        unless: a setting of [model] and its value under which the claim does not hold.
    """

    claim: str
    measure: Callable
    where: str
    writing: bool = False
    fresh: bool = False
    needs: str = "labels"
    adapted: bool = False
    unless: tuple[str, Any] | None = None

    @property
    def name(self) -> str:
        """The name under which it is reported."""
        return self.measure.__name__

    def concerns(self, subject: Subject) -> bool:
        """Return whether the check applies to `subject`."""
        if self.unless and getattr(subject.run.config.model, self.unless[0]) == self.unless[1]:
            return False
        if self.adapted and (subject.trained or not subject.run.config.train.lora_rank):
            return False
        fits = self.needs in subject.whole_batch and not (self.fresh and subject.trained)
        return fits and (subject.task.writes or not self.writing)


CHECKS = (
    Check("the labels are the next tokens, the masked tokens, or the class",
          learning.labels, "data/examples.py, data/language.py, data/masking.py, data/labels.py"),
    Check("no position sees what comes after it", reading.future, "layers/masks.py, models/", writing=True,
          unless=NO_CAUSAL_MASK),
    Check("padding changes no result", reading.padding, "layers/masks.py, models/"),
    Check("labels without weight do not count", reading.weightless, "training/loss.py"),
    Check("a text has the same result alone and in a batch", reading.alone, "layers/, models/"),
    Check("documents in one row cannot see each other",
          reading.documents, "layers/masks.py, models/causal_lm.py", needs="segments"),
    Check("pairs in one row cannot see each other",
          reading.pairs, "layers/masks.py, models/transformer.py", needs="source_segments"),
    Check("the order of the tokens matters", reading.order, "layers/positions.py, layers/input_embedding.py",
          unless=("positions", "none")),
    Check("attention is softmax(q k / sqrt(H)) v", reading.attention, "layers/attention.py"),
    Check("a saved and loaded model computes the same", reading.saving, "runs/run.py, runs/weights.py, config/"),
    Check("decoding with caches equals decoding without",
          writing.cached, "decoding/search.py, layers/attention.py", writing=True, unless=NO_CAUSAL_MASK),
    Check("a beam's scores are the log-probabilities of its texts",
          writing.beams, "decoding/beam_search.py", writing=True, unless=NO_CAUSAL_MASK),
    Check("the first loss is near that of random guessing",
          learning.start, "layers/embeddings.py, the initial weights", fresh=True),
    Check("two halves of a batch have the same gradient as the whole",
          learning.accumulation, "training/objective.py, training/loss.py"),
    Check("a gradient reaches every trainable weight, and no other",
          learning.gradients, "models/, train.freeze"),
    Check("adapters change nothing at the start", learning.adapters, "runs/adapters.py", adapted=True),
    Check("dropout is on in training if configured, and nothing is random otherwise",
          learning.dropout, "models/: is `training` passed on?"),
    Check(f"the loss of one batch falls within {learning.UPDATES} updates",
          learning.loss_falls, "training/optimizer.py, training/schedule.py, training/objective.py"),
)  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """The result of a check."""

    check: Check
    measured: float
    allowed: float
    details: str = ""

    @property
    def passed(self) -> bool:
        """Whether the measured value is allowed; NaN is not."""
        return not math.isnan(self.measured) and self.measured <= self.allowed

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as a dict for JSON; infinity and NaN become None."""
        measured, allowed = (x if math.isfinite(x) else None for x in (self.measured, self.allowed))
        result = {"check": self.check.name, "passed": self.passed, "measured": measured, "allowed": allowed}
        return result | {"details": self.details, "where": self.check.where}

    def __str__(self) -> str:
        if self.passed:
            return f"ok      {self.check.name:11s} {self.check.claim}"
        details = f": {self.details}" if self.details else ""
        return (
            f"FAILED  {self.check.name:11s} {self.check.claim}: measured {self.measured:.3g}, at most "
            f"{self.allowed:.3g} allowed{details}. Look at {self.check.where}."
        )


def check(
    run: Run,
    batch: Any,
    frozen: tuple[str, ...] = (),
    trained: bool = False,
    report: Callable[[Finding], Any] | None = None,
    only: Collection[str] | None = None,
) -> list[Finding]:
    """Check a run on some of its examples; return the `Finding`s.

    Args:
        run: a `Run`; its folder need not exist unless `trained`.
        batch: a batch of the examples that it is trained on.
        frozen: name prefixes of the weights that must not change.
        trained: check the weights in its folder, not fresh ones.
        report: called with each finding as soon as it is known.
        only: names of the checks to run; None: all.
    """
    subject = Subject(run, batch, frozen, trained)
    findings = []
    with backend.full_float32_products():
        for one in CHECKS:
            if one.concerns(subject) and (only is None or one.name in only):
                findings.append(Finding(one, *one.measure(subject)))
                if report:
                    report(findings[-1])
    return findings


def require(run: Run, batch: Any, frozen: tuple[str, ...], report: Callable[[str], Any]) -> None:
    """Check a run before its training.

    Raises:
        InputError: a check failed; the message says which, by how much, and where to look.
    """
    began = time.monotonic()
    report("self-check: masks, padding, caches and gradients of this model, on its own text ...")
    with progress_bar() as bar:
        shown = bar.add_task("self-check", total=None)
        findings = check(run, batch, frozen, report=lambda finding: bar.update(shown, description=finding.check.name))
    gc.collect()  # its models are in reference cycles, and training needs the memory
    failed = [finding for finding in findings if not finding.passed]
    if failed:
        raise InputError(
            "The self-check failed, so training is pointless (to train anyway: --train.check false --force):\n"
            + "\n".join(map(str, failed))
        )
    report(f"self-check: {len(findings)} checks passed in {time.monotonic() - began:.0f} s")
