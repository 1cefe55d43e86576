"""What heedful does on an accelerator, in at most nine minutes: correctness, speed beside PyTorch, memory.

    python -m benchmarks.gpu [--out gpu.json] [--minutes 9] [--small]

Each stage is a process of its own. Stages that no longer fit into the time, or whose library is missing, are left out,
and the table says so; none takes more than `LONGEST` seconds. `--small` runs tiny sizes, to try the script on a CPU.

- correctness: logits, loss and greedy translations of a random model, beside the same on the CPU
- updates of `base` and `big` in bfloat16 with 25,000 target tokens, beside the compiled loop on PyTorch; MFU of both
- `shakespeare-char` to its end or as far as the time allows, with its validation loss
- translation of 2,000 random sentences with a model of size `base`, beside transformers and CTranslate2
  with the same weights
- one update on all devices, if there are several, beside one device
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.gpu.correctness import correctness
from benchmarks.gpu.training import shakespeare, torch_updates, updates
from benchmarks.gpu.translation import ctranslate2_translation, transformers_translation, translation

SMALL = {"tokens": 512, "updates": 4, "sentences": 64, "sizes": ["tiny"]}
LONGEST = 180  # seconds of a stage
FULL = {"tokens": 25_000, "updates": 64, "sentences": 2000, "sizes": ["base", "big"]}


def run_stage(stage, options):
    """Run a stage in this process; write its result to `options.result`."""
    name, _, size = stage.partition(":")
    if name == "correctness":
        np.savez(options.result, **correctness(options))
        return
    stages = {
        "updates": lambda: updates(size, options), "one device": lambda: updates(size, options, devices=1),
        "torch": lambda: torch_updates(size, options), "translation": lambda: translation(options),
        "ctranslate2": lambda: ctranslate2_translation(options),
        "transformers": lambda: transformers_translation(options),
        "shakespeare": lambda: shakespeare(options), "device": device,
    }  # fmt: skip
    Path(options.result).write_text(json.dumps(stages[name]()))


def device():
    """Return the name and number of the devices, and the versions of the libraries."""
    from heedful import __version__, backend  # first: it selects the backend of Keras

    import jax  # isort: skip
    import keras  # isort: skip

    versions = {"heedful": __version__, "jax": jax.__version__, "keras": keras.__version__}
    return {"device": backend.device(), "devices": backend.device_count(), **versions}


def in_process(stage, options, deadline, **environment):
    """Run a stage in a process; return the file of its result, or why there is none."""
    suffix = ".npz" if stage == "correctness" else ".json"
    path = Path(options.folder) / f"{stage.replace(':', '-').replace(' ', '-')}-{len(environment)}{suffix}"
    left = min(LONGEST, deadline - time.monotonic())
    command = [sys.executable, "-m", "benchmarks.gpu", "--stage", stage, "--result", str(path), "--seconds", str(left)]
    command += ["--small"] * options.small
    if left < 5:
        return "no time left"
    try:
        done = subprocess.run(
            command, env=os.environ | environment, timeout=left, capture_output=True, text=True, check=False
        )
    except subprocess.TimeoutExpired:
        return "no time left"
    return path if done.returncode == 0 else ([*filter(str.strip, done.stderr.splitlines())] or ["no message"])[-1]


def compare_with_cpu(options, deadline):
    """Return how far the results on the device are from those on the CPU."""
    results = [in_process("correctness", options, deadline, **one) for one in ({}, {"JAX_PLATFORMS": "cpu"})]
    if failed := [one for one in results if isinstance(one, str)]:
        return failed[0]
    ours, cpu = (np.load(path) for path in results)
    equal = (ours["ids"] == cpu["ids"]).all(-1) & (ours["lengths"] == cpu["lengths"])
    return {
        "logits": float(np.abs(ours["logits"] - cpu["logits"]).max()),
        "loss": float(abs(ours["sums"][0] / cpu["sums"][0] - 1)), "equal_translations": float(equal.mean()),
    }  # fmt: skip


def shown(name, result):
    """Return a row of the table."""
    if isinstance(result, str):
        return f"{name:28s} left out: {result}"
    figures = (f"{key} {value:,.4g}" for key, value in result.items() if isinstance(value, (int, float)))
    texts = (value for value in result.values() if isinstance(value, str))
    return f"{name:28s} {', '.join([*texts, *figures])}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="file for the figures, JSON")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--small", action="store_true", help="tiny sizes")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=600.0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    vars(options).update(SMALL if options.small else FULL)
    if options.stage:
        run_stage(options.stage, options)
        return
    deadline, results = time.monotonic() + 60 * options.minutes, {}

    def add(name, result):
        results[name] = json.loads(result.read_text()) if isinstance(result, Path) else result
        print(shown(name, results[name]), flush=True)
        if options.out:
            options.out.write_text(json.dumps(results, indent=2) + "\n")

    with tempfile.TemporaryDirectory() as options.folder:
        add("device", in_process("device", options, deadline))
        add("correctness", compare_with_cpu(options, deadline))
        for size in options.sizes:
            for name in ("updates", "torch"):
                add(f"{name}, {size}", in_process(f"{name}:{size}", options, deadline))
        if isinstance(results["device"], dict) and results["device"]["devices"] > 1:
            add("one device", in_process(f"one device:{options.sizes[0]}", options, deadline))
        for name in ("translation", "transformers", "ctranslate2"):
            add(name, in_process(name, options, deadline))
        add("shakespeare-char", in_process("shakespeare", options, deadline))


if __name__ == "__main__":
    main()
