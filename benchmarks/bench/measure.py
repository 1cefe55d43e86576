"""Measure one engine in this process: `python -m benchmarks.bench.measure JSON`, with the arguments of `main`.

The time excludes compilation and one warm-up batch per shape. Target tokens are counted without padding.
"""

import dataclasses
import functools
import itertools
import json
import sys
import time

from heedful.core import memory

OWN = "heedful"
WARM_UPS = 3  # updates of a peer before it is measured, in addition to one per shape


def heedful_speed(work, updates):
    """Return the speed of `fit` on packed pairs, as the trainer runs it.

    The keys are tokens_per_second, batch_tokens, padding and mfu.
    """
    from heedful.training.cost_estimate import step_seconds
    from heedful.training.flops import FlopCounter
    from heedful.training.machine import product_rate

    examples, objective, rates = work.packed, new_objective(work), [product_rate(work.train.precision)]

    def seconds(numbers):
        return sum(step_seconds(objective, map(examples.batch, itertools.cycle(numbers)), len(numbers)))

    seconds(examples.first_of_each_shape())
    taken = seconds(range(updates))
    demand = FlopCounter(objective.model)
    rates.append(product_rate(work.train.precision))  # twice: one measurement on a shared machine may be too low
    operations = sum(demand.of(examples.batch(number)) for number in range(updates))
    tokens = sum(map(examples.tokens, range(updates)))
    known = [rate for rate in rates if rate]  # none for an unknown GPU
    return {
        "tokens_per_second": tokens / taken,
        "batch_tokens": tokens / updates,
        "padding": examples.plan.padding_share,
        "mfu": operations / taken / max(known) if known else None,
    }


def new_objective(work):
    """Return the work's model with fresh weights and its loss, compiled with Adam as in Vaswani et al. 2017."""
    from heedful import backend
    from heedful.models.transformer import Transformer
    from heedful.training.objective import training_objective

    backend.set_seed(1)
    model = Transformer(work.vocab_size, work.vocab_size, dtype=work.train.dtype_policy, **work.model.keywords())
    train = dataclasses.replace(work.train, schedule="paper", learning_rate=1.0, warmup_updates=1000)
    return training_objective(model, train)


def peer_speed(name, work, updates):
    """Return the speed of a peer on unpacked pairs: tokens_per_second, batch_tokens and padding."""
    import numpy as np

    from benchmarks.bench.peers import PEERS

    peer = PEERS[name](work)
    examples = getattr(work, peer.BATCHES)
    batches = {number: peer.padded(examples.batch(number)) for number in range(updates)}
    for number in [*examples.first_of_each_shape(), *range(WARM_UPS)]:
        peer.update(peer.padded(examples.batch(number)))
    began = time.perf_counter()
    for batch in batches.values():
        peer.update(batch)
    seconds = time.perf_counter() - began
    texts = [batch[side] for batch in batches.values() for side in ("source", "target")]
    tokens = sum(map(examples.tokens, range(updates)))
    return {
        "tokens_per_second": tokens / seconds,
        "batch_tokens": tokens / updates,
        "padding": 1 - sum(map(np.count_nonzero, texts)) / sum(text.size for text in texts),
    }


def main(engine, path, updates):
    """Measure one engine on the `Work` in a file; print the result as JSON on the last line."""
    if engine == OWN:
        memory.keep_freed_memory()  # before the first thread starts; peers manage memory themselves
    from benchmarks.bench.work import Work

    speed = heedful_speed if engine == OWN else functools.partial(peer_speed, engine)
    result = speed(Work.open(path), updates)
    print(json.dumps(result | {"peak_gib": memory.peak() / 2**30}))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
