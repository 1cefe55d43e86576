"""Measure the memory that batches of a run take: `python -m heedful.workflows.memory_trial RUN`.

A process keeps the memory it once took, so a fresh one is needed; and if memory runs out, only that process dies.
"""

import json
import sys
from pathlib import Path

from heedful import backend
from heedful.core.memory import keep_freed_memory
from heedful.runs.run import Run
from heedful.training.machine import memory_limit
from heedful.workflows.training import Training


def main(path: str | Path) -> None:
    """Try updates of a run; print the fields of a `Trial` as JSON."""
    keep_freed_memory()
    if backend.device() != "cpu" and backend.device_memory() is None:
        sys.exit(f"{backend.NAME} does not report how much memory {backend.device()} has: set data.batch_tokens.")
    run = Run.open(path)
    training = Training(run, report=lambda line: None)
    used = training.estimate_cost().memory
    examples = training.examples
    tokens = max(rows * max(lengths) for rows, *lengths in map(examples.shape, examples.first_of_each_shape()))
    everything = examples.batches_per_epoch <= 1
    print(json.dumps({"tokens": tokens, "used": used, "limit": memory_limit(), "everything": everything}))


if __name__ == "__main__":
    main(sys.argv[1])
