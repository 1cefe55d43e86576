"""Training speed and memory of heedful beside a plain torch.nn.Transformer loop, alternating in one run.

    HEEDFUL_DATA=... python benchmarks/training.py [--rounds 3] [--updates 40] [--size tutorial] [--batch-tokens 4096]

Same text, vocabulary (joint BPE of 8,000), sizes, tied weights, dropout, label smoothing, optimizer and tokens a batch.
Real target tokens are counted, padding is not; heedful's compilations and one warm-up batch a shape are left out on
both sides. torch gets sentences of similar length, padded to the longest of the batch; heedful packs pairs into rows of
32 tokens, or, with `--pack-tokens 0`, gets the same sentences as torch. Each round runs each engine in a process of its
own; the last line gives the ratio of the medians, and heedful's share of what the machine's matrix products can do.
"""

import argparse
import collections
import itertools
import json
import resource
import statistics
import subprocess
import sys
import time

from heedful.memory import hold_memory


def prepare(options):
    """Return the examples of Multi30k de-en, and the size of the vocabulary."""
    from heedful.config import Config, DataConfig, TrainConfig
    from heedful.data.corpus import Corpus
    from heedful.data.encoded import encode
    from heedful.data.tokenizer import Tokenizer
    from heedful.jobs.translation import examples_of

    corpus = Corpus.from_files(["multi30k/train.de.gz", "multi30k/train.en.gz"])
    tokenizer = Tokenizer.train(itertools.chain.from_iterable(corpus), "bpe", 8000)
    sizes = {"batch_tokens": options.batch_tokens, "max_shapes": options.max_shapes}
    packing = {"pack_tokens": options.pack_tokens if options.engine == "heedful" else 0}
    config = Config(data=DataConfig(corpus="phrasebook", **sizes, **packing), train=TrainConfig(updates=10_000))
    return examples_of(config, encode(corpus, tokenizer, tokenizer, 64)), len(tokenizer)


def first_of_each_shape(examples):
    """Return a batch number for every shape, for warming up."""
    found = {}
    for number in range(10_000):
        found.setdefault(examples.shape(number), number)
        if len(found) == len(examples.plan.shapes):
            break
    return list(found.values())


def heedful_speed(options):
    """Return what `fit` makes, as the trainer runs it: tokens_per_second, padding and product_share."""
    hold_memory()
    import keras
    import numpy as np

    import heedful
    from heedful import backend
    from heedful.config import ModelConfig
    from heedful.training.machine import Demand, product_rate
    from heedful.training.objective import Objective
    from heedful.training.optimizer import Schedule, adam

    examples, vocab_size = prepare(options)
    keras.utils.set_random_seed(1)
    sizes = ModelConfig(size=options.size, tie="all").keywords()
    objective = Objective(heedful.Transformer(vocab_size, vocab_size, **sizes), 0.1)
    objective.compile(adam(Schedule("paper", 1.0, 1000, sizes["d_model"])))

    def batch(number):
        return examples.batch(number) | {"update_tokens": np.array([examples.tokens(number)], np.float32)}

    def fit(numbers):
        feed = backend.feed(map(batch, itertools.chain(numbers, numbers)), batch(0))
        watch = Synchronous()
        objective.fit(feed, steps_per_epoch=len(numbers), epochs=1, verbose=0, shuffle=False, callbacks=[watch])

    class Synchronous(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            float(logs["loss"])

    fit(first_of_each_shape(examples))
    began = time.perf_counter()
    fit(range(options.updates))
    seconds = time.perf_counter() - began
    demand = Demand(objective.model)
    operations = sum(demand.of(batch(number)) for number in range(options.updates))
    return {
        "tokens_per_second": sum(map(examples.tokens, range(options.updates))) / seconds,
        "padding": examples.plan.padding_share,
        "product_share": operations / seconds / product_rate(),
    }


def torch_speed(options):
    """Return what a plain PyTorch loop makes: tokens_per_second and padding."""
    import numpy as np
    import torch
    from torch import nn

    from heedful.config import ModelConfig
    from heedful.layers import sinusoid

    examples, vocab_size = prepare(options)
    sizes = ModelConfig(size=options.size)
    torch.manual_seed(1)
    width = sizes.d_model
    table = torch.tensor(np.array(sinusoid(np.arange(256), width)))

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(vocab_size, width, padding_idx=0)
            self.dropout = nn.Dropout(sizes.dropout)
            self.transformer = nn.Transformer(
                width, sizes.num_heads, sizes.num_layers, sizes.num_layers, sizes.d_ff, sizes.dropout, batch_first=True
            )

        def embed(self, ids):
            return self.dropout(self.embedding(ids) * width**0.5 + table[: ids.shape[1]])

        def forward(self, source, target):
            future = nn.Transformer.generate_square_subsequent_mask(target.shape[1], dtype=torch.bool)
            out = self.transformer(
                self.embed(source), self.embed(target), tgt_mask=future, src_key_padding_mask=source == 0,
                memory_key_padding_mask=source == 0, tgt_is_causal=True,
            )  # fmt: skip
            return out @ self.embedding.weight.T

    model = Plain()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
    criterion = nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1)

    def update(number):
        arrays = examples.batch(number)
        longest = {name: (arrays[name] != 0).sum(1).max() for name in ("source", "labels")} | {"target": 0}
        longest["target"] = longest["labels"]
        source, target, labels = (
            torch.tensor(arrays[name][:, : longest[name]], dtype=torch.long) for name in ("source", "target", "labels")
        )
        counts["places"] += source.numel() + target.numel()
        counts["real"] += int((source != 0).sum() + (target != 0).sum())
        optimizer.zero_grad()
        logits = model(source, target)
        loss = criterion(logits.reshape(-1, vocab_size), labels.reshape(-1))
        loss.backward()
        optimizer.step()
        return float(loss)

    model.train()
    counts = collections.Counter()
    for number in first_of_each_shape(examples):
        update(number)
    counts.clear()
    began = time.perf_counter()
    for number in range(options.updates):
        update(number)
    seconds = time.perf_counter() - began
    tokens = sum(map(examples.tokens, range(options.updates)))
    return {"tokens_per_second": tokens / seconds, "padding": 1 - counts["real"] / counts["places"]}


ENGINES = {"heedful": heedful_speed, "torch": torch_speed}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--size", default="tutorial")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--max-shapes", type=int, default=10)
    parser.add_argument("--pack-tokens", type=int, default=32, help="0: a row for each pair")
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        result = ENGINES[options.engine](options)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(json.dumps(result | {"peak_gib": peak}))
        return
    results = {engine: [] for engine in ENGINES}
    for round_number in range(options.rounds):
        for engine in ENGINES:
            command = [sys.executable, __file__, *sys.argv[1:], "--engine", engine]
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            results[engine].append(json.loads(output.splitlines()[-1]))
            last = results[engine][-1]
            print(
                f"round {round_number + 1}  {engine:8s} {last['tokens_per_second']:8,.0f} target tokens/s"
                f"  padding {last['padding']:.1%}  peak {last['peak_gib']:.2f} GiB",
                flush=True,
            )
    speed = {e: statistics.median(r["tokens_per_second"] for r in results[e]) for e in ENGINES}
    share = statistics.median(r["product_share"] for r in results["heedful"])
    peak = {e: statistics.median(r["peak_gib"] for r in results[e]) for e in ENGINES}
    print(
        f"size {options.size}, {options.batch_tokens} tokens: heedful {speed['heedful']:,.0f} and torch "
        f"{speed['torch']:,.0f} target tokens/s, ratio {speed['heedful'] / speed['torch']:.2f}, {share:.0%} of the "
        f"machine's products; "
        f"peak memory {peak['heedful']:.2f} and {peak['torch']:.2f} GiB"
    )


if __name__ == "__main__":
    main()
