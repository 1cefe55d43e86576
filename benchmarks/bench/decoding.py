"""Compare the decoding speed of heedful and CTranslate2, alternating, from text to text.

Both engines have the same weights, by our export. Size `base` is a model with random weights and the run's vocabulary
that writes exactly 24 tokens per sentence. Rows with batch size 64 translate all sentences; CTranslate2 then uses one
worker per core. Rows with batch size 1 translate one sentence after the other; CTranslate2 then uses either one thread
or one per core, whichever is faster. Output tokens include end tokens; the time includes tokenization, but neither
compilation nor one warm-up.
"""

import dataclasses
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from heedful import backend
from heedful.commands.arguments import add_run, count
from heedful.config import ModelConfig
from heedful.core.errors import InputError
from heedful.core.processors import cores
from heedful.inference.translator import Translator
from heedful.interop.export.ctranslate2 import export
from heedful.interop.export.ctranslate2_search import ctranslate2_translator
from heedful.runs.run import Run
from heedful.tasks.translation_data import corpora
from heedful.training.machine import peak_memory

WRITTEN = 24  # tokens per sentence that the model with random weights writes


def base_run(run, folder):
    """Return a run of size `base` with random weights and the vocabulary of `run`."""
    backend.set_seed(1)
    config = dataclasses.replace(run.config, model=ModelConfig(size="base", tie="all"))
    new = Run.create(folder / "base", config, run.source_tokenizer, run.target_tokenizer)
    new.save_model(new.build_model())
    return new


def translate_all(translator, lines, batch_size, **options):
    """Return the translations of all lines, in batches or one by one."""
    if batch_size > 1:
        return translator.translate(lines, batch_size=batch_size, **options)
    return [translator.translate(line, **options) for line in lines]


def row(run, folder, lines, beam_size, batch_size, rounds, fixed, precisions):
    """Measure one row; return the speed in each round, of heedful by precision, and of CTranslate2."""
    options = {"beam_size": beam_size, "length_penalty": 0.0} | (
        {"min_length": fixed, "max_length": fixed, "max_extra": fixed} if fixed else {}
    )
    threads = [(cores(), 1)] if batch_size > 1 else [(1, 1), (1, cores())]
    decode = dataclasses.replace(run.config.decode, stop="attainable")
    own = Translator.from_run(run, decode)
    plain = dataclasses.replace(decode, precision="float32")
    theirs = [ctranslate2_translator(run, plain, folder, threads=each) for each in threads]
    engines = [(own, {"precision": each}) for each in precisions] + [(engine, {}) for engine in theirs]
    speeds: list[list[float]] = [[] for _ in engines]
    for round_number in range(rounds + 1):
        for (engine, precision), measured in zip(engines, speeds, strict=True):
            began = time.perf_counter()
            translations = translate_all(engine, lines, batch_size, **options, **precision)
            seconds = time.perf_counter() - began
            tokens = sum(map(len, run.target_tokenizer.encode_batch(translations))) + len(translations)
            if round_number:  # the first round is warm-up
                measured.append(len(lines) * fixed / seconds if fixed else tokens / seconds)
    count = len(precisions)
    return dict(zip(precisions, speeds[:count], strict=True)), max(speeds[count:], key=statistics.median)


def cold_start(run):
    """Return how many seconds `heedful translate` takes for one line, with an empty and with a filled cache."""
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"HEEDFUL_CACHE": cache}
        command = [sys.executable, "-m", "heedful", "translate", str(run)]
        seconds = []
        for _ in range(2):
            began = time.perf_counter()
            subprocess.run(command, input=b"Ein Hund rennt.\n", env=environment, check=True, capture_output=True)
            seconds.append(time.perf_counter() - began)
    return seconds


def compare(options, report):
    """Report a line per row with the ratio of the speeds, and finally the smallest median ratio.

    Args:
        options: `run` (the folder of a translator), `rounds`, `sentences`, `quantization` (of CTranslate2's weights),
            `precision` (a list, of our products) and `sizes` (`trained`, `base`).
        report: called with each line.

    Raises:
        InputError: the run has no test text, or heedful would run on an accelerator.
    """
    os.environ.setdefault("CT2_USE_MKL", "0")  # CTranslate2 is faster without MKL on most machines
    if backend.device() != "cpu":
        raise InputError("CTranslate2 is measured on the CPU: set JAX_PLATFORMS=cpu.")
    backend.keep_compilations()
    trained = Run.open(options.run).of_task("translate")
    texts = corpora(trained.config)
    if "test" not in texts:
        raise InputError(f"{options.run} names no test text to translate.")
    lines = [source for source, _ in itertools.islice(texts["test"], options.sentences)]
    ratios = {}
    with tempfile.TemporaryDirectory() as temporary:
        for size in options.sizes:
            run = trained if size == "trained" else base_run(trained, Path(temporary))
            folder = export(run, Path(temporary) / f"{size}-ct2", options.quantization)
            fixed = WRITTEN if size == "base" else 0
            for batch_size in (64, 1):
                few = lines[: max(1, (256 if fixed else len(lines)) // (1 if batch_size > 1 else 16))]
                for beam_size in (1, 4):
                    ours, theirs = row(
                        run, folder, few, beam_size, batch_size, options.rounds, fixed, options.precision
                    )
                    name = f"{size} {'greedy' if beam_size == 1 else 'beam 4'} batch {batch_size}"
                    for precision, speeds in ours.items():
                        each = [one / two for one, two in zip(speeds, theirs, strict=True)]
                        ratios[f"{name} {precision}"] = statistics.median(each)
                        report(
                            f"{name:26s} heedful {precision} {statistics.median(speeds):8,.0f}  "
                            f"CTranslate2 {options.quantization} {statistics.median(theirs):8,.0f} tokens/s  "
                            f"ratio median {statistics.median(each):.2f} min {min(each):.2f}"
                        )
    first, second = cold_start(options.run)
    report(f"heedful translate of one line: {first:.1f} s the first time, {second:.1f} s the second")
    report(f"peak memory of this process, both engines: {peak_memory() / 2**30:.2f} GiB")
    worst = min(ratios, key=ratios.__getitem__)
    report(f"{len(ratios)} rows, lowest median ratio {ratios[worst]:.2f} ({worst})")


def add_arguments(parser):
    """Add the arguments of the benchmark."""
    add_run(parser, "a trained translator with test text")
    parser.add_argument("--rounds", type=count, default=5, help="measurements per row (default: 5)")
    parser.add_argument("--sentences", type=count, default=1000, help="sentences to translate (default: 1000)")
    parser.add_argument("--quantization", default="float32", help="type of CTranslate2's weights (default: float32)")
    parser.add_argument(
        "--precision", nargs="+", default=["float32"], choices=("float32", "bfloat16", "int8"),
        help="precisions of heedful's matrix products, one or several (default: float32)",
    )  # fmt: skip
    parser.add_argument(
        "--sizes", nargs="+", choices=("trained", "base"), default=["trained", "base"],
        help="the run's own weights, random ones of size base, or both (default)",
    )  # fmt: skip


def run(options):
    """Run the benchmark."""
    compare(options, print)
