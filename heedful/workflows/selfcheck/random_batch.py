"""Examples for a run without text, such as an imported one: random tokens in the form of its task."""

import numpy as np

from heedful.runs.run import Run

ROWS, LENGTH = 8, 24


def random_batch(run: Run) -> dict[str, np.ndarray]:
    """Return a batch of random tokens in the form of the run's task."""
    length = min(LENGTH, run.config.model.max_length - 1)
    batch = run.task.random_batch(run, np.random.default_rng(5), ROWS, length)
    shape = (ROWS, 1) if run.config.data.several_labels else batch["labels"].shape
    return batch | {"weights": np.ones(shape, np.float32)}
