"""A model in training as the checks need it: loss by loss, gradient by gradient."""

import numpy as np

from heedful import backend
from heedful.training.objective import Objective
from heedful.training.optimizer import Schedule, adam


class Practice:
    """A model in training.

    Args:
        model: fresh.
        train: a `TrainConfig`.
        batch: whose labels without weight make a batch that counts for nothing.
        rate: learning rate.
    """

    def __init__(self, model, train, batch, rate):
        self.model, self.batch, self.micro_batches = model, batch, train.accumulate
        self.objective = Objective(model, train.label_smoothing, self.micro_batches)
        schedule = Schedule("inverse_square_root", rate, 10, micro_batches=self.micro_batches)
        self.optimizer = adam(schedule, micro_batches=self.micro_batches)
        self.objective.compile(self.optimizer)
        self.optimizer.build(self.objective.trainable_variables)
        # weights, seeds of dropout, the optimizer
        self.beginning = [(v, backend.to_numpy(v)) for v in (*model.variables, *self.optimizer.variables)]

    def fit(self, batches, tokens=None):
        """Train on batches that make whole updates, of `tokens` each; return the mean of the loss that is minimised."""
        if tokens is None:
            tokens = sum(batch["weights"].sum() for batch in batches[: self.micro_batches])
        tokens = np.array([max(1.0, tokens)], np.float32)
        batches = [batch | {"update_tokens": tokens} for batch in batches]
        data = backend.feed(iter(batches), batches[0])
        history = self.objective.fit(data, steps_per_epoch=len(batches), epochs=1, verbose=0, shuffle=False)
        return float(history.history["smoothed_loss"][-1])

    def gradient(self, batches, tokens):
        """Return the gradient of the first update, by each weight that is trained: what Adam remembers of it."""
        self.begin_again()
        nothing = self.batch | {"weights": np.zeros_like(self.batch["weights"])}
        self.fit([*batches, *[nothing] * (self.micro_batches - len(batches))], tokens)
        moments = [variable for variable in self.optimizer.variables if variable.path.endswith("_momentum")]
        return [backend.to_numpy(moment) / (1 - self.optimizer.beta_1) for moment in moments]

    def begin_again(self, seeds=True):
        """Put everything back to where it was, or all but the seeds of dropout."""
        for variable, value in self.beginning:
            if seeds or "seed" not in variable.path:
                variable.assign(value)
