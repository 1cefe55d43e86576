"""Measure how much of an update's time its matrix products take on their own: no other saving can go below it.

    HEEDFUL_DATA=... python -m benchmarks.products [--size tutorial] [--batch-tokens 4096] [--rounds 9]

Each kind of product in an update of multi30k-de-en is a program of its own, with the same number of rows: the forward
products of all kernels, the gradients of their inputs, the gradients of the kernels, and the three products of the
loss, piece by piece. They alternate with whole updates and, where torch is installed, with the same products in torch,
which uses another library. All times are medians. JAX only. The last line compares them. Settings of data, tokenizer
and precision may follow, as for `heedful train`.
"""

import argparse
import importlib.util
import itertools
import statistics
import time
from collections import Counter

from heedful.core.memory import keep_freed_memory


def kernel_products(model, batch, dtype):
    """Return a function for each kind of product with kernels, its arguments and its operations."""
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
            empty = jax.numpy.zeros((y.shape[0], kernel.shape[0]), dtype)  # the gradient does not depend on it
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
        "gradients of inputs": (by_read, (kernels, upstream), operations),
        "gradients of kernels": (by_kernels, (read, upstream), operations),
    }


def loss_products(model, batch, dtype):
    """Return the same for the products with the embedding table, in pieces as the loss computes them."""
    import jax
    import numpy as np

    from heedful import backend
    from heedful.training.loss import tokens_per_chunk

    rng = np.random.default_rng(2)
    words, width = model.output_projection.embeddings.shape
    piece_tokens = tokens_per_chunk(words)
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
    """Return a torch function for each kind of product, with the arguments of the JAX function."""

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
        "gradients of inputs": by_read,
        "gradients of kernels": by_kernels,
        "products of the loss": loss,
    }


def training(options, arguments):
    """Return a model, a batch of the most common shape, the products' dtype, and a function that times an update."""
    from benchmarks.bench.measure import new_objective
    from benchmarks.bench.preparation import prepare
    from heedful.training.cost_estimate import step_seconds

    work = prepare("multi30k-de-en", arguments, options.size, options.batch_tokens)
    objective = new_objective(work)
    shapes = [work.packed.shape(number) for number in range(60)]
    commonest = Counter(map(str, shapes)).most_common(1)[0][0]
    numbers = itertools.cycle(number for number, shape in enumerate(shapes) if str(shape) == commonest)

    def update():
        seconds = step_seconds(objective, map(work.packed.batch, numbers), 4)
        return statistics.median(seconds[1:])  # the first includes the start of `fit`

    dtype = "float32" if work.train.precision == "float32" else "bfloat16"
    return objective.model, work.packed.batch(next(numbers)), dtype, update


def main():
    """Measure everything, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="tutorial")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=9)
    options, arguments = parser.parse_known_args()
    keep_freed_memory()
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
    """Return a function that calls `function`, waits for its result and returns the seconds."""

    def measure():
        began = time.perf_counter()
        wait(function(*arguments))
        return time.perf_counter() - began

    return measure


if __name__ == "__main__":
    main()
