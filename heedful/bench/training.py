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
from typing import Any

from heedful.bench.measure import OWN
from heedful.bench.peers import PEERS
from heedful.errors import InputError

ENGINES = (OWN, *PEERS)
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
    command = [sys.executable, "-m", "heedful.bench.measure", json.dumps(arguments | {"engine": engine})]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        message = " ".join(done.stderr.splitlines()[-1:])
        raise InputError(f"{engine} failed with exit code {done.returncode}: {message}")
    return json.loads(done.stdout.splitlines()[-1])


def _medians(results):
    names = [name for name, value in results[0].items() if value is not None]
    return {name: statistics.median(result[name] for result in results) for name in names}
