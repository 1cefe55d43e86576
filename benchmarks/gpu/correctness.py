"""Logits, loss and greedy translations of a random model, to compare two devices."""

import numpy as np

from benchmarks.gpu.work import RandomPairs, new_model, vocabulary


def correctness(options):
    """Return logits, loss and greedy translations, as arrays."""
    from heedful import backend
    from heedful.config import DecodeConfig
    from heedful.decoding.batch_search import BatchSearch
    from heedful.training.objective import batch_sums

    model, batch = new_model("tiny"), RandomPairs(512).arrays
    with backend.full_float32_products():
        logits = backend.compiled(lambda one: model(one), model)(batch)
        sums = backend.compiled(lambda one: batch_sums(model, one, 0.1), model)(batch)
        search = BatchSearch(model, DecodeConfig(max_length=20), vocabulary())
        ids = [candidates[0].ids for candidates in search([row.tolist() for row in batch["source"]])]
    lengths = np.array([len(row) for row in ids])
    padded = np.array([[*row, *[0] * (64 - len(row))] for row in ids])
    return {"logits": backend.to_numpy(logits), "sums": backend.to_numpy(sums), "lengths": lengths, "ids": padded}
