"""One engine measured in this process: `python -m heedful.bench.measure`, with what to do as JSON.

Compilations and one warm-up batch a shape are left out; real target tokens are counted, padding is not.
"""

import json
import sys
import time

from heedful.memory import hold_memory

OWN = "heedful"


def heedful_speed(work, updates):
    """Return what `fit` makes of packed pairs, as the trainer runs it: tokens_per_second, padding, product_share."""
    import keras
    import numpy as np

    from heedful import backend
    from heedful.jobs.job import keep_compilations
    from heedful.models.transformer import Transformer
    from heedful.training.machine import Demand, product_rate
    from heedful.training.objective import Objective
    from heedful.training.optimizer import Schedule, adam

    keep_compilations()
    examples, sizes = work.packed, work.model
    backend.set_seed(1)
    objective = Objective(Transformer(work.vocab_size, work.vocab_size, **sizes.keywords()), work.label_smoothing)
    objective.compile(adam(Schedule("paper", 1.0, 1000, sizes.d_model)))

    def batch(number):
        return examples.batch(number) | {"update_tokens": np.array([examples.tokens(number)], np.float32)}

    class Synchronous(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            float(logs["loss"])

    def fit(numbers):
        feed = backend.feed((batch(number) for number in [*numbers, *numbers]), batch(0))
        watch = Synchronous()
        objective.fit(feed, steps_per_epoch=len(numbers), epochs=1, verbose=0, shuffle=False, callbacks=[watch])

    fit(work.first_of_each_shape(examples))
    began = time.perf_counter()
    fit(range(updates))
    seconds = time.perf_counter() - began
    demand, rate = Demand(objective.model), product_rate()
    operations = sum(demand.of(batch(number)) for number in range(updates))
    return {
        "tokens_per_second": sum(map(examples.tokens, range(updates))) / seconds,
        "padding": examples.plan.padding_share,
        "product_share": operations / seconds / rate if rate else None,  # an unknown GPU
    }


def peer_speed(name, work, updates):
    """Return what a peer makes of pairs in rows of their own: tokens_per_second and padding."""
    import numpy as np

    from heedful.bench.peers import PEERS

    peer, examples = PEERS[name](work), work.single
    batches = {number: peer.padded(examples.batch(number)) for number in range(updates)}
    for number in work.first_of_each_shape(examples):
        peer.update(peer.padded(examples.batch(number)))
    began = time.perf_counter()
    for batch in batches.values():
        peer.update(batch)
    seconds = time.perf_counter() - began
    texts = [batch[side] for batch in batches.values() for side in ("source", "target")]
    return {
        "tokens_per_second": sum(map(examples.tokens, range(updates))) / seconds,
        "padding": 1 - sum(map(np.count_nonzero, texts)) / sum(text.size for text in texts),
    }


def main(engine, recipe, size, batch_tokens, updates):
    """Measure one engine; print the result as JSON on the last line."""
    if engine == OWN:
        hold_memory()  # before the first thread; what the others do with memory is theirs to say
    from heedful.bench.work import Work
    from heedful.config import Config
    from heedful.recipes import find_recipe
    from heedful.training.machine import peak_memory

    work = Work.of_recipe(Config.from_toml(find_recipe(recipe)), size, batch_tokens)
    result = heedful_speed(work, updates) if engine == OWN else peer_speed(engine, work, updates)
    print(json.dumps(result | {"peak_gib": peak_memory() / 2**30}))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
