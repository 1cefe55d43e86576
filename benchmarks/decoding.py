"""Decoding speed of heedful beside CTranslate2, alternating in one run, from text to text.

    HEEDFUL_DATA=... python benchmarks/decoding.py RUN [--rounds 5] [--sentences 1000] [--quantization float32]
        [--sizes tutorial base]

RUN is a trained multi30k-de-en run of size `tutorial`; the same weights go to both engines by our export. Size `base`
is a model with random weights and RUN's vocabulary that writes exactly 24 tokens for each sentence. Text is
multi30k test_2016_flickr. Rows of 64 translate all sentences with batches of 64; CTranslate2 runs with two workers of
one thread. Rows of 1 translate one sentence after the other; there CTranslate2 has the better of one and two threads.
Output tokens include end tokens; tokenizing is part of the time. Compilations and one warm-up are left out. Prints a
line for each row with the ratio of each round's speeds, and the smallest median ratio on its last line.
"""

import argparse
import dataclasses
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("CT2_USE_MKL", "0")  # CTranslate2 is faster without on most machines

from heedful.memory import hold_memory


def base_run(run, folder):
    """Return a run of size `base` with random weights and the vocabulary of `run`."""
    import keras

    from heedful.config import ModelConfig
    from heedful.run import Run

    keras.utils.set_random_seed(1)
    config = dataclasses.replace(run.config, model=ModelConfig(size="base", tie="all"))
    made = Run.create(folder / "base", config, run.source_tokenizer, run.target_tokenizer)
    made.save_model(model=made.build_model())
    return made


def translate_all(translator, lines, batch_size, **options):
    """Return the translations of all lines, in batches or one by one."""
    if batch_size > 1:
        return translator.translate(lines, batch_size=batch_size, **options)
    return [translator.translate(line, **options) for line in lines]


def row(run, folder, lines, beam_size, batch_size, rounds, fixed):
    """Measure one row; return (speeds of heedful, speeds of CTranslate2), one of each a round."""
    from heedful.generation.translator import Translator
    from heedful.serving.engine import ctranslate2_translator

    options = {"beam_size": beam_size, "length_penalty": 0.0} | (
        {"min_length": fixed, "max_length": fixed} if fixed else {}
    )
    threads = [(2, 1)] if batch_size > 1 else [(1, 1), (1, 2)]
    engines = [Translator.from_run(run)]
    engines += [ctranslate2_translator(run, folder=folder, threads=each) for each in threads]
    speeds = [[] for _ in engines]
    for round_number in range(rounds + 1):
        for engine, measured in zip(engines, speeds, strict=True):
            began = time.perf_counter()
            made = translate_all(engine, lines, batch_size, **options)
            seconds = time.perf_counter() - began
            tokens = sum(map(len, run.target_tokenizer.encode_batch(made))) + len(made)
            if round_number:  # the first one is warm-up
                measured.append(len(lines) * fixed / seconds if fixed else tokens / seconds)
    theirs = max(speeds[1:], key=statistics.median)
    return speeds[0], theirs


def cold_start(run):
    """Return the seconds from `heedful translate` of one line to its end, with an empty cache and with a full one."""
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"HEEDFUL_CACHE": cache}
        command = [sys.executable, "-m", "heedful.cli", "translate", str(run)]
        seconds = []
        for _ in range(2):
            began = time.perf_counter()
            subprocess.run(command, input=b"Ein Hund rennt.\n", env=environment, check=True, capture_output=True)
            seconds.append(time.perf_counter() - began)
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--quantization", default="float32", help="of CTranslate2's weights")
    parser.add_argument("--sizes", nargs="+", choices=("tutorial", "base"), default=["tutorial", "base"])
    options = parser.parse_args()
    hold_memory()
    from heedful.data.corpus import read_lines, resolve
    from heedful.jobs.job import keep_compilations
    from heedful.run import Run
    from heedful.serving.export import export

    keep_compilations()
    trained = Run.open(options.run)
    lines = list(read_lines(resolve("multi30k/test_2016_flickr.de.gz")))[: options.sentences]
    ratios = {}
    with tempfile.TemporaryDirectory() as temporary:
        for size in options.sizes:
            run = trained if size == "tutorial" else base_run(trained, Path(temporary))
            folder = export(run, Path(temporary) / f"{size}-ct2", options.quantization)
            fixed = 24 if size == "base" else 0
            for batch_size in (64, 1):
                few = lines[: (256 if fixed else len(lines)) // (1 if batch_size > 1 else 16)]
                for beam_size in (1, 4):
                    ours, theirs = row(run, folder, few, beam_size, batch_size, options.rounds, fixed)
                    each = [one / two for one, two in zip(ours, theirs, strict=True)]
                    name = f"{size} {'greedy' if beam_size == 1 else 'beam 4'} batch {batch_size}"
                    ratios[name] = statistics.median(each)
                    print(
                        f"{name:26s} heedful {statistics.median(ours):8,.0f}  "
                        f"CTranslate2 {options.quantization} {statistics.median(theirs):8,.0f} tokens/s  "
                        f"ratio median {ratios[name]:.2f} min {min(each):.2f}",
                        flush=True,
                    )
    first, second = cold_start(options.run)
    print(f"heedful translate of one line: {first:.1f} s the first time, {second:.1f} s the second")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory of this process, both engines: {peak:.2f} GiB")
    worst = min(ratios, key=ratios.get)
    print(f"{len(ratios)} rows, lowest median ratio {ratios[worst]:.2f} ({worst})")


if __name__ == "__main__":
    main()
