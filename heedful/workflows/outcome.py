"""Whether a training that has ended was a success."""

import math

from heedful.core.errors import InputError, counted
from heedful.core.progress import Report
from heedful.data.examples import Examples
from heedful.runs.run import Run
from heedful.training.constant_guess import constant_loss, sampled

FEW = 100  # updates in which a model need not have learned anything
TENTH = 0.1


def require_success(run: Run, training: Examples, valid: Examples | None, report: Report, ended: bool = False) -> None:
    """Raise `InputError` if the minutes ended a training at its beginning, or if the model has learned nothing.

    A model has learned something if its loss on the validation text was ever below that of a constant guess: of one
    that knows nothing but the frequency of each training label. A training of few updates is only reported.

    Args:
        run: the trained `Run`.
        training: its training examples.
        valid: the examples of its validation text, if it has one.
        report: called with each line for the user.
        ended: whether the training came to its end, and the clock did not stop it.
    """
    train = run.config.train
    log = run.log.read()
    updates = log[-1]["update"] if log else 0
    cut_short = train.schedule_ends and not ended
    if train.minutes and updates < TENTH * train.updates and (cut_short or updates < FEW):
        raise InputError(
            f"train.minutes = {train.minutes:g} ended this training at update {updates:,} of {train.updates:,}: "
            f"{run.path} is hardly trained. Resume it with more minutes, or plan fewer updates."
        )
    losses = [entry["valid_loss"] for entry in log if math.isfinite(entry.get("valid_loss", math.inf))]
    if valid is None or not losses:
        return
    best = min(losses)
    guess = constant_loss(sampled(training), valid.one_pass(), run.config.data.several_labels)
    if best < guess:
        return
    problem = (
        f"The validation loss never came below {guess:.3f}, that of the same guess everywhere (it was {best:.3f} at "
        "best): the model has learned nothing from its input"
    )
    if updates < FEW:
        report(f"{problem}, in {counted(updates, 'update')}.")
        return
    if updates < train.warmup_updates:
        advice = ", or set train.schedule to cosine, which is planned for train.minutes" if train.could_be_paced else ""
        raise InputError(
            f"{problem}. It ended at update {updates:,}, in the warm-up of {train.warmup_updates:,} updates: shorten "
            f"train.warmup_updates{advice}."
        )
    raise InputError(
        f"{problem}. Look at {run.path / 'curves.png'}: lower train.learning_rate ({train.learning_rate:g}), lengthen "
        "train.warmup_updates, train longer, or examine the text with heedful doctor."
    )
