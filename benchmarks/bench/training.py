"""Compare training speed and memory of heedful and its peers on a CPU: the same text and sizes, alternating.

All engines but the tutorials' loop have the same number of tokens per batch, including padding. The table gives the
target tokens without padding. Each round runs each engine in its own process (`measure.py`).
"""

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.bench.measure import OWN
from benchmarks.bench.peers import PEERS
from benchmarks.bench.preparation import prepare
from heedful.commands.arguments import count
from heedful.config import SIZES
from heedful.core.errors import InputError

TAKES_SETTINGS = True
ENGINES = (OWN, *PEERS)
ROOT = Path(__file__).parents[2]  # of the project, where the package of the benchmarks is found
ON_CPU = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}  # the peers' loops run on the CPU


def installed():
    """Return the names of the engines that can be measured here."""
    return [engine for engine in ENGINES if engine == OWN or all(map(importlib.util.find_spec, PEERS[engine].MODULES))]


def compare(engines, rounds, arguments, report):
    """Run the engines in turn; report each result, then a table of all.

    A peer that fails is skipped from then on; a line gives the reason.

    Args:
        engines: names of installed ones, `heedful` first.
        rounds: number of runs of each engine.
        arguments: the other arguments of `measure.main`.
        report: called with each line.

    Returns:
        The medians of each engine.

    Raises:
        InputError: heedful itself fails; the message ends with the last line of its standard error.
    """
    results: dict[str, list[Any]] = {engine: [] for engine in engines}
    for number in range(rounds):
        for engine in list(results):
            try:
                measured = _measured(engine, arguments)
            except InputError as error:
                if engine == OWN:
                    raise
                report(f"round {number + 1}  left out: {error}")
                del results[engine]
                continue
            results[engine].append(measured)
            report(f"round {number + 1}  {engine:14s} {measured['tokens_per_second']:8,.0f} target tokens/s")
    titles = f"{'heedful is':>12s} {'a batch':>8s} {'padding':>8s} {'peak memory':>12s}"
    report(f"{'engine':14s} {'target tokens/s':>15s} {titles}")
    medians = {engine: _medians(each) for engine, each in results.items()}
    own = medians[OWN]["tokens_per_second"]
    for engine, each in medians.items():
        ratio = f"{own / each['tokens_per_second']:.2f} times"
        report(
            f"{engine:14s} {each['tokens_per_second']:15,.0f} {ratio:>12s} {each['batch_tokens']:8,.0f} "
            f"{each['padding']:8.1%} {each['peak_gib']:8.2f} GiB"
        )
    return medians


def summary(medians):
    """Return a line that summarizes the result of `compare`."""
    own = medians[OWN]
    ratios = [
        f"{own['tokens_per_second'] / each['tokens_per_second']:.2f} times {engine}"
        for engine, each in medians.items()
        if engine != OWN
    ]
    share = [f"{own['mfu']:.0%} of the machine's products"] if "mfu" in own else []
    return ", ".join([f"heedful: {own['tokens_per_second']:,.0f} target tokens/s", *ratios, *share])


def _measured(engine, arguments):
    """Return the result of `measure.main` in a new process."""
    environment = os.environ | ON_CPU | (PEERS[engine].ENVIRONMENT if engine in PEERS else {})
    command = [sys.executable, "-m", "benchmarks.bench.measure", json.dumps(arguments | {"engine": engine})]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    if done.returncode:
        message = " ".join(done.stderr.splitlines()[-1:])
        raise InputError(f"{engine} failed with exit code {done.returncode}: {message}")
    return json.loads(done.stdout.splitlines()[-1])


def _medians(results):
    names = [name for name, value in results[0].items() if value is not None]
    return {name: statistics.median(result[name] for result in results) for name in names}


def add_arguments(parser):
    """Add the arguments of the benchmark."""
    parser.add_argument(
        "recipe", nargs="?", default="multi30k-de-en", help="a translation recipe (default: multi30k-de-en)"
    )
    parser.add_argument("--size", default="tutorial", choices=tuple(SIZES), help="model size (default: tutorial)")
    parser.add_argument("--batch-tokens", type=count, default=4096, help="tokens per batch (default: 4096)")
    parser.add_argument(
        "--engines", nargs="+", metavar="NAME",
        help="torch, tutorial_loop, transformers, eole, joeynmt, keras_hub (default: all that are installed)",
    )  # fmt: skip
    parser.add_argument("--rounds", type=count, default=3, help="measurements per engine (default: 3)")
    parser.add_argument("--updates", type=count, default=20, help="updates per round (default: 20)")
    parser.epilog = "Settings of data, tokenizer, dropout and precision as in `heedful train`: --SECTION.KEY VALUE."


def run(options):
    """Run the benchmark."""
    there = installed()
    if missing := [engine for engine in options.engines or () if engine not in there]:
        raise InputError(f"Not installed here: {', '.join(missing)}. Installed: {', '.join(there)}.")
    work = prepare(options.recipe, options.overrides, options.size, options.batch_tokens)
    engines = dict.fromkeys([OWN, *(options.engines or there)])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "work"
        work.save(path)
        arguments = {"path": str(path), "updates": options.updates}
        medians = compare(list(engines), options.rounds, arguments, print)
    print(f"size {options.size}, {options.batch_tokens:,} tokens a batch: {summary(medians)}")
