"""What batches of a run take of the memory, tried in a process of its own: `python -m heedful.jobs.trial RUN`.

A process keeps what it once took, so only a fresh one tells; and if there is too little, it is this one that dies.
"""

import json
import sys

from heedful import backend
from heedful.jobs import JOBS
from heedful.memory import hold_memory
from heedful.run import Run
from heedful.training.machine import memory_limit


def main(path):
    """Rehearse a run; print as JSON what a `Trial` is made of."""
    hold_memory()
    if backend.device() != "cpu" and backend.device_memory() is None:
        sys.exit(f"{backend.NAME} does not tell how much memory {backend.device()} has: set data.batch_tokens.")
    run = Run.open(path)
    job = JOBS[run.config.task](run, report=lambda line: None)
    used = job.rehearse().memory
    tokens = max(rows * max(lengths) for rows, *lengths in map(job.examples.shape, job.examples.first_of_each_shape()))
    everything = job.examples.batches_per_epoch <= 1
    print(json.dumps({"tokens": tokens, "used": used, "limit": memory_limit(), "everything": everything}))


if __name__ == "__main__":
    main(sys.argv[1])
