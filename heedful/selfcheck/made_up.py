"""Examples for a run that comes without text, such as an imported one: random tokens in the form of its task.

Axes: B examples, T text length, M masked places.
"""

import numpy as np

from heedful.data.tokenizer import END_ID, START_ID

ROWS, LENGTH = 8, 24
FIRST = END_ID + 1  # the first id of a real token


def made_up(run):
    """Return a batch of random tokens as the examples of the run's task have it."""
    random, task = np.random.default_rng(5), run.config.task
    length = min(LENGTH, run.config.model.max_length - 1)
    ids = random.integers(FIRST, len(run.source_tokenizer), (ROWS, length), dtype=np.int32)
    begin, end = np.full((ROWS, 1), START_ID, np.int32), np.full((ROWS, 1), END_ID, np.int32)
    whole = np.concatenate([begin, ids[:, 2:], end], axis=1)  # (B, T)
    if task == "translate":
        written = random.integers(FIRST, len(run.target_tokenizer), ids.shape, dtype=np.int32)
        batch = {"source": np.concatenate([ids, end], axis=1), "target": np.concatenate([begin, written], axis=1)}
        batch["labels"] = np.concatenate([written, end], axis=1)
    elif task == "generate":
        batch = {"ids": ids[:, :-1], "labels": ids[:, 1:]}
    elif task == "fill":
        places = np.sort(random.permuted(np.tile(np.arange(1, length - 2), (ROWS, 1)), axis=1)[:, :3], axis=1)
        batch = {"ids": whole.copy(), "places": places, "labels": np.take_along_axis(whole, places, axis=1)}
        np.put_along_axis(batch["ids"], places, run.tokenizer.mask_id, axis=1)
    else:
        classes = len(run.config.data.labels)
        batch = {"ids": whole, "labels": random.integers(0, classes, (ROWS, 1), dtype=np.int32)}
    return batch | {"weights": np.ones(batch["labels"].shape, np.float32)}
