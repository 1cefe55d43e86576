"""How much of an update's time its matrix products take when nothing else is done: what any other saving leaves.

    HEEDFUL_DATA=... python benchmarks/products.py [--size tutorial] [--batch-tokens 4096] [--rounds 9]

Each kind of product of an update of multi30k-de-en, with as many rows as there, is a program of its own: of all kernels
forward, the gradients of what they read, their own gradients, and the three products of the loss, a piece after the
other. They alternate with whole updates, and with the same products in torch where it is installed, which has another
library for them; all are medians. JAX only. The last line compares them. Settings of data, tokenizer and precision may
follow, as for `heedful train`.
"""

import argparse
import importlib.util
import itertools
import statistics
import time
from collections import Counter

from heedful.memory import hold_memory


def kernel_products(model, batch, dtype):
    """Return the name of each kind of product with kernels, and a function that makes them all and its arguments."""
    import jax
    import numpy as np

    from heedful import backend

    rng = np.random.default_rng(1)

    def drawn(*shape):
        return jax.numpy.asarray(rng.standard_normal(shape, np.float32), dtype)

    read, kernels, upstream = [], [], []
    for weight in model.weights:
        if weight.path.endswith("kernel"):
            of_source = "/encoder/" in weight.path or "cross_attention/key_value" in weight.path
            rows = batch["source" if of_source else "target"].size
            depth, units = weight.shape
            read.append(drawn(rows, depth))
            kernels.append(drawn(depth, units))
            upstream.append(drawn(rows, units))

    def forward(read, kernels):
        return [backend.affine(*pair) for pair in zip(read, kernels, strict=True)]

    def by_read(kernels, upstream):
        def gradient(kernel, y):
            empty = jax.numpy.zeros((y.shape[0], kernel.shape[0]), dtype)  # the gradient does not hang on it
            return jax.vjp(lambda x: backend.affine(x, kernel), empty)[1](y)[0]

        return [gradient(*pair) for pair in zip(kernels, upstream, strict=True)]

    def by_kernels(read, upstream):
        def gradient(x, y):
            empty = jax.numpy.zeros((x.shape[1], y.shape[1]), dtype)
            return jax.vjp(lambda kernel: backend.affine(x, kernel), empty)[1](y)[0]

        return [gradient(*pair) for pair in zip(read, upstream, strict=True)]

    operations = sum(2 * x.shape[0] * y.size for x, y in zip(read, kernels, strict=True))
    return {
        "kernels, forward": (forward, (read, kernels), operations),
        "gradients of what they read": (by_read, (kernels, upstream), operations),
        "gradients of kernels": (by_kernels, (read, upstream), operations),
    }


def loss_products(model, batch, dtype):
    """Return the same of the products with the table of words, in pieces as the loss makes them."""
    import jax
    import numpy as np

    from heedful import backend
    from heedful.training.loss import tokens_a_piece

    rng = np.random.default_rng(2)
    words, width = model.output_projection.embeddings.shape
    piece_tokens = tokens_a_piece(words)
    pieces = -(-batch["labels"].size // piece_tokens)
    features = jax.numpy.asarray(rng.standard_normal((pieces, piece_tokens, width), np.float32), dtype)
    table = jax.numpy.asarray(rng.standard_normal((words, width), np.float32), dtype)

    def loss(features, table):
        def piece(by_table, features):
            logits = backend.multiply(features, table.T).astype(dtype)
            return by_table + backend.multiply_transposed(features, logits), backend.multiply(logits, table)

        return jax.lax.scan(piece, jax.numpy.zeros((width, words)), features)

    return {"products of the loss": (loss, (features, table), 6 * features.size * words)}


def torch_products():
    """Return what makes the products of each kind in torch; arguments as of those here."""

    def forward(read, kernels):
        return [x @ kernel for x, kernel in zip(read, kernels, strict=True)]

    def by_read(kernels, upstream):
        return [y @ kernel.T for kernel, y in zip(kernels, upstream, strict=True)]

    def by_kernels(read, upstream):
        return [x.T @ y for x, y in zip(read, upstream, strict=True)]

    def loss(features, table):
        by_features, by_table = [], 0
        for piece in features:
            logits = piece @ table.T
            by_features.append(logits @ table)
            by_table = by_table + piece.T @ logits
        return by_features, by_table

    return {
        "kernels, forward": forward,
        "gradients of what they read": by_read,
        "gradients of kernels": by_kernels,
        "products of the loss": loss,
    }


def training(options, arguments):
    """Return a model, a batch of the commonest shape, the type of its products, and what times an update."""
    from heedful.bench.measure import new_objective
    from heedful.bench.preparation import prepare
    from heedful.training.cost_estimate import step_seconds

    work = prepare("multi30k-de-en", arguments, options.size, options.batch_tokens)
    objective = new_objective(work)
    shapes = [work.packed.shape(number) for number in range(60)]
    commonest = Counter(map(str, shapes)).most_common(1)[0][0]
    numbers = itertools.cycle(number for number, shape in enumerate(shapes) if str(shape) == commonest)

    def update():
        seconds = step_seconds(objective, map(work.packed.batch, numbers), 4)
        return statistics.median(seconds[1:])  # the first one begins `fit`

    dtype = "float32" if work.train.precision == "float32" else "bfloat16"
    return objective.model, work.packed.batch(next(numbers)), dtype, update


def main():
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="tutorial")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=9)
    options, arguments = parser.parse_known_args()
    hold_memory()
    import jax

    from heedful.training.machine import product_rate

    model, batch, dtype, update = training(options, arguments)
    kinds = kernel_products(model, batch, dtype) | loss_products(model, batch, dtype)
    measured = {("update", ""): update}
    for name, (function, arguments, _) in kinds.items():
        measured[name, "xla"] = called(jax.jit(function), arguments, jax.block_until_ready)
    if importlib.util.find_spec("torch"):
        import torch

        for name, function in torch_products().items():
            arguments = jax.tree.map(torch.from_dlpack, kinds[name][1])
            measured[name, "torch"] = called(function, arguments)
    seconds = {key: [] for key in measured}
    for _ in range(options.rounds + 1):
        for key, measure in measured.items():
            seconds[key].append(measure())
    medians = {key: statistics.median(each[1:]) for key, each in seconds.items()}  # the first round compiles
    alone = Counter()
    for (name, library), median in medians.items():
        if library:
            rate = kinds[name][2] / median / 1e9
            print(f"{name:28s} {library:6s} {median * 1e3:7.1f} ms {rate:6.0f} GFLOP/s", flush=True)
            alone[library] += median
    update_seconds, best = medians["update", ""], product_rate(dtype)
    rate = sum(operations for _, _, operations in kinds.values()) / alone["xla"]
    in_torch = f"; in torch they take {alone['torch'] * 1e3:.0f} ms" if alone["torch"] else ""
    print(
        f"products of an update alone: {alone['xla'] * 1e3:.0f} of {update_seconds * 1e3:.0f} ms "
        f"({alone['xla'] / update_seconds:.0%}), at {rate / 1e9:.0f} GFLOP/s (the machine's best: {best / 1e9:.0f})"
        f"{in_torch}"
    )


def called(function, arguments, wait=lambda result: None):
    """Return what calls a function, waits for its result and returns the seconds."""

    def measure():
        began = time.perf_counter()
        wait(function(*arguments))
        return time.perf_counter() - began

    return measure


if __name__ == "__main__":
    main()
