"""Compare the training speed of a model as in recipe shakespeare-char-cpu with that of a plain PyTorch loop.

    HEEDFUL_DATA=... python benchmarks/language_model.py [--rounds 5] [--updates 200]

Both have the same text, sizes, architecture (pre-norm, rotary positions, GELU, tied embeddings, no biases, no dropout),
batches, AdamW and clipping, run in float32 on all cores, and wait for each update. Muon and the norms of queries and
keys, which the recipe has too, are left out of both. Compile time is excluded. Each round
runs both engines, each in a process of its own; the last line gives the ratio of the medians.
"""

import argparse
import dataclasses
import itertools
import statistics
import subprocess
import sys
import time

from heedful.core.memory import keep_freed_memory

WARM_UPS = 20  # untimed updates


def prepare(options):
    """Return the recipe's config, its examples and the size of its vocabulary."""
    from heedful.config import Config
    from heedful.config.recipes import find_recipe
    from heedful.data.documents import encode_texts
    from heedful.tasks.documents import text_tokenizer
    from heedful.tasks.generate import Generate, examples_of

    config = Config.from_toml(find_recipe("shakespeare-char-cpu"))
    config = dataclasses.replace(
        config, model=dataclasses.replace(config.model, qk_norm=False),
        train=dataclasses.replace(config.train, optimizer="adam"),
    )  # fmt: skip
    corpus = Generate().find_corpora(config)["train"]
    tokenizer = text_tokenizer(config, corpus)
    return config, examples_of(config, encode_texts(corpus, tokenizer)), len(tokenizer)


def heedful_speed(options):
    """Return tokens per second of `fit` as the trainer runs it."""
    keep_freed_memory()
    import heedful
    from heedful.training.cost_estimate import step_seconds
    from heedful.training.objective import training_objective

    config, examples, size = prepare(options)
    objective = training_objective(heedful.CausalLM(size, **config.model.keywords()), config.train)
    seconds = step_seconds(objective, map(examples.batch, itertools.count()), WARM_UPS + options.updates)
    return options.updates * examples.tokens(0) / sum(seconds[WARM_UPS:])


def torch_speed(options):
    """Return tokens per second of the loop that a PyTorch user would write."""
    keep_freed_memory()
    import torch
    import torch.nn.functional as functional
    from torch import nn

    config, examples, size = prepare(options)
    model_config = config.model
    width, heads, length = model_config.d_model, model_config.num_heads, model_config.max_length
    half = width // heads // 2
    angles = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(half) / half)
    cosine, sine = angles.cos(), angles.sin()

    def rotate(x):
        first, second = x[..., :half], x[..., half:]
        return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(width, 1e-6, bias=False) for _ in range(2))
            self.joint, self.output = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
            self.inner = nn.Linear(width, model_config.d_ff, bias=False)
            self.outer = nn.Linear(model_config.d_ff, width, bias=False)

        def forward(self, x):
            rows = x.shape[0]
            joint = self.joint(self.norms[0](x)).view(rows, length, 3, heads, -1)
            query, keys, values = joint.permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(rotate(query), rotate(keys), values, is_causal=True)
            x = x + self.output(mixed.transpose(1, 2).reshape(rows, length, width))
            return x + self.outer(functional.gelu(self.inner(self.norms[1](x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(size, width)
            nn.init.normal_(self.table.weight, std=width**-0.5)
            self.blocks = nn.ModuleList(Block() for _ in range(model_config.num_layers))
            self.norm = nn.LayerNorm(width, 1e-6, bias=False)

        def forward(self, ids):
            x = self.table(ids) * width**0.5
            for block in self.blocks:
                x = block(x)
            return self.norm(x) @ self.table.weight.T

    model, train = Model(), config.train
    optimizer = torch.optim.AdamW(
        model.parameters(), train.learning_rate, betas=(0.9, train.beta_2), weight_decay=train.weight_decay
    )

    def run(first, updates):
        for number in range(first, first + updates):
            batch = examples.batch(number)
            ids, labels = (torch.from_numpy(batch[name]).long() for name in ("ids", "labels"))
            loss = functional.cross_entropy(model(ids).flatten(0, 1), labels.flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), train.clip_norm)
            optimizer.step()
            loss.item()

    run(0, WARM_UPS)
    began = time.monotonic()
    run(WARM_UPS, options.updates)
    return options.updates * examples.tokens(0) / (time.monotonic() - began)


ENGINES = {"heedful": heedful_speed, "torch": torch_speed}


def main():
    """Compare the engines, or with --engine measure one of them once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        print(ENGINES[options.engine](options))
        return
    speeds = {engine: [] for engine in ENGINES}
    for _ in range(options.rounds):
        for engine, found in speeds.items():
            command = [sys.executable, __file__, "--engine", engine, "--updates", str(options.updates)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found.append(float(done.stdout.splitlines()[-1]))
            print(f"{engine:8s} {found[-1]:9,.0f} tokens/s", flush=True)
    ours, theirs = (statistics.median(found) for found in speeds.values())
    print(f"model of shakespeare-char-cpu: {ours:,.0f} tokens/s, PyTorch loop {theirs:,.0f}: ratio {ours / theirs:.2f}")


if __name__ == "__main__":
    main()
