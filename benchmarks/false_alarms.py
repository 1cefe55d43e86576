"""Run the self-check on random valid configurations of all tasks; count its false alarms and measure its time.

    KERAS_BACKEND=jax python benchmarks/false_alarms.py [--configurations 50] [--seed 1]

Each configuration draws its task, sizes, every option of the model, the tokenizer, dropout, accumulation and the
precision; the text is the built-in phrasebook. The last line counts the configurations with a failed check.
"""

import argparse
import dataclasses
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from heedful import backend
from heedful.config import Config, DataConfig, ModelConfig, TokenizerConfig, TrainConfig
from heedful.core.errors import InputError
from heedful.core.plugins import task_names
from heedful.data.phrasebook import phrasebook
from heedful.workflows import Training
from heedful.workflows.selfcheck.check import check

SENTENCES = 400


def write_text(folder):
    """Write the text of the tasks that have no built-in corpus; return its files by task."""
    pairs = list(phrasebook("train", SENTENCES))
    plain, labelled = folder / "plain.txt", folder / "labelled.txt"
    plain.write_text("".join(f"{target}\n" for _, target in pairs), encoding="utf-8")
    rows = (f"{'long' if len(target) > 30 else 'short'}\t{target}\n" for _, target in pairs)
    labelled.write_text("".join(rows), encoding="utf-8")
    return {"generate": plain, "fill": plain, "classify": labelled}


def draw(random, files):
    """Return a random configuration; some are not valid."""

    def one(*choices):
        return choices[random.integers(len(choices))]

    task = one("translate", "generate", "fill", "classify")
    heads = one(1, 2, 4)
    max_length = one(24, 64)
    model = ModelConfig(
        num_layers=one(1, 2, 3), d_model=heads * one(4, 6, 16), num_heads=heads, d_ff=one(12, 40),
        num_kv_heads=one(None, 1, 2), activation=one("relu", "gelu", "gelu_tanh", "silu", "geglu", "swiglu"),
        norm_position=one("post", "pre"), norm=one("layer", "rms"), norm_epsilon=one(1e-6, 1e-5), bias=one(True, False),
        positions=one("sinusoidal", "sinusoidal_concatenated", "learned", "rotary"), qk_norm=one(True, False),
        embedding_norm=one(True, False),
        embedding_scale=one(True, False), tie=one("none", "target", "all"), output_bias=one(True, False),
        pooling=one("mean", "first"), dropout=one(0.0, 0.1, 0.3), attention_dropout=one(0.0, 0.1),
        max_length=max_length,
    )  # fmt: skip
    texts = {} if task == "translate" else {"train": (str(files[task]),)}
    data = DataConfig(
        corpus="phrasebook" if task == "translate" else "files", sentences=SENTENCES, documents="lines",
        packing=one("stream", "documents"), whole_words=one(True, False), max_tokens=one(12, 24),
        batch_tokens=one(60, 200, 600), max_shapes=one(1, 2), **texts,
    )  # fmt: skip
    train = TrainConfig(
        accumulate_batches=one(1, 1, 2, 3), label_smoothing=one(0.0, 0.1, 0.4),
        precision=one("float32", "float32", "bfloat16"),
        seed=int(random.integers(100)),
    )  # fmt: skip
    kind = one("bpe", "wordpiece", "unigram", "word") if task == "fill" else one("bpe", "word", "char", "unigram")
    tokenizer = TokenizerConfig(kind=kind, vocab_size=300, joint=one(True, False), lowercase=one(True, False))
    return Config(task=task, data=data, model=model, train=train, tokenizer=tokenizer)


def main():
    """Check configurations until there are enough valid ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configurations", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    random = np.random.default_rng(options.seed)
    alarms, seconds, tasks = 0, [], []
    with tempfile.TemporaryDirectory() as folder:
        files = write_text(Path(folder))
        while len(seconds) < options.configurations:
            try:
                config = draw(random, files)
                training = Training.prepared(config, Path(folder) / "run", report=lambda line: None)
            except InputError:
                continue  # not valid, or no text is left
            began = time.monotonic()
            findings = check(training.run, training.examples.batch(0), training.frozen)
            seconds.append(time.monotonic() - began)
            tasks.append(config.task)
            failed = [finding for finding in findings if not finding.passed]
            alarms += bool(failed)
            print(f"{len(seconds):3d} {config.task:9s} {seconds[-1]:5.1f} s  {'alarm' if failed else 'ok'}", flush=True)
            for finding in failed:
                print(f"    {finding}\n    {dataclasses.asdict(config.model)} {config.train.precision}", flush=True)
    counts = ", ".join(f"{task} {tasks.count(task)}" for task in task_names())
    print(
        f"false alarms on {backend.NAME}: {alarms} of {len(seconds)} configurations ({counts}), "
        f"{statistics.median(seconds):.1f} s each, slowest {max(seconds):.1f} s"
    )


if __name__ == "__main__":
    main()
