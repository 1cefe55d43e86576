"""Measure the padding of the planned batches of Multi30k, and the time to plan those of a million pairs.

    HEEDFUL_DATA=... python benchmarks/planning.py [--pairs 1000000] [--pack-tokens 40]

The million pairs have random lengths: lognormal with a median of 20 tokens, targets about as long as their sources. The
last line gives the padding of Multi30k with one pair per row and packed, and the seconds for the million pairs.
"""

import argparse
import itertools
import time
import types

import numpy as np

from heedful.config import Config, DataConfig, TrainConfig
from heedful.data.corpus import Corpus
from heedful.data.encoded import Ragged, encode
from heedful.data.tokenizer import Tokenizer
from heedful.tasks.translation_data import examples_of

SHAPES = 12


def planned(pairs, pack_tokens):
    """Return the examples of a long training on `pairs`, in at most `SHAPES` shapes, and the seconds of planning."""
    data = DataConfig(corpus="phrasebook", max_shapes=SHAPES, pack_tokens=pack_tokens)
    began = time.perf_counter()
    examples = examples_of(Config(data=data, train=TrainConfig(updates=100_000)), pairs)
    return examples, time.perf_counter() - began


def drawn(count):
    """Return pairs of random lengths, up to 200 tokens; all ids are 0."""
    rng = np.random.default_rng(1)
    source = np.clip(np.exp(rng.normal(np.log(20), 0.6, count)), 1, 199).astype(int)
    target = np.clip(source * np.exp(rng.normal(0, 0.2, count)), 1, 199).astype(int)

    def ragged(lengths):
        return Ragged(np.zeros(int(lengths.sum()), np.int32), np.concatenate([[0], np.cumsum(lengths)]))

    return types.SimpleNamespace(source=ragged(source), target=ragged(target))


def main():
    """Plan batches, and print their padding and the time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--pack-tokens", type=int, default=40)
    options = parser.parse_args()
    corpus = Corpus.from_files(["multi30k/train.de.gz", "multi30k/train.en.gz"])
    tokenizer = Tokenizer.train(itertools.chain.from_iterable(corpus), "bpe", 8000)
    pairs = encode(corpus, tokenizer, tokenizer, 64)
    padding = {}
    for name, room in (("rows of their own", 0), ("packed", options.pack_tokens)):
        examples, _ = planned(pairs, room)
        padding[name] = examples.plan.padding_share
        print(f"Multi30k, {name}:\n{examples}", flush=True)
    many = drawn(options.pairs)
    seconds = {}
    for name, room in (("rows of their own", 0), ("packed", options.pack_tokens * 2)):
        examples, seconds[name] = planned(many, room)
        print(
            f"{options.pairs:,} pairs, {name}: {len(examples.plan.shapes)} shapes, {examples.plan.padding_share:.1%} "
            f"padding, {seconds[name]:.1f} s",
            flush=True,
        )
    print(
        f"padding of Multi30k with at most {SHAPES} shapes: {padding['rows of their own']:.1%} in rows of their own, "
        f"{padding['packed']:.1%} packed; {options.pairs:,} pairs planned in {seconds['rows of their own']:.1f} s, "
        f"packed in {seconds['packed']:.1f} s"
    )


if __name__ == "__main__":
    main()
