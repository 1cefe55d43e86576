"""Train recipes on several devices and in several processes, and compare with one device.

    python benchmarks/devices.py [quickstart trec shakespeare-char-cpu sst2-fill] [--updates 60]

Each arrangement is a training of its own on CPU devices. Printed are |difference| / |one device| over all float arrays
of the last state (weights and Adam's moments), the largest difference of a weight, the largest relative difference of a
validation loss, the checks that passed, and how often the update was compiled, beside the number of batch shapes. The
second training with two processes is compared with the first one, bit by bit.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from heedful.runs.run import Run

ARRANGEMENTS = {
    "one device": (1, []),
    "2 devices": (2, []),
    "2 devices, weights shared": (2, ["--train.shard", "true"]),
    "4 devices": (4, []),
    "2 processes": (1, ["--processes", "2"]),
    "2 processes again": (1, ["--processes", "2"]),
}


def train(recipe, folder, updates, devices, arguments):
    """Train a recipe; return its output, the messages of the compiler, and the seconds it took."""
    environment = os.environ | {
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}",
        "NPROC": "16",  # threads of XLA: with as many as cores, one device can keep the other waiting for ever
        "JAX_LOG_COMPILES": "1",
    }
    command = [
        sys.executable, "-m", "heedful", "train", recipe, "--run", folder, "--force", "--train.minutes", "0",
        "--train.updates", updates, "--train.validate_every", max(1, updates // 3), "--train.average", "0", *arguments,
    ]  # fmt: skip
    began = time.monotonic()
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout, done.stderr, time.monotonic() - began


def compared(one, other):
    """Return the relative difference of two states, the largest of a weight, that of the losses, and bit equality."""
    first, second = (run.checkpoints.read_last()[0] for run in (one, other))
    changed = total = largest = 0.0
    for name, array in first.items():
        if array.dtype.kind == "f":
            difference = np.abs(array.astype(np.float64) - second[name])
            changed, total = changed + (difference**2).sum(), total + (array.astype(np.float64) ** 2).sum()
            if name.startswith("model"):
                largest = max(largest, float(difference.max(initial=0)))
    same = all(array.tobytes() == second[name].tobytes() for name, array in first.items())
    losses = [[entry["valid_loss"] for entry in run.log.read()] for run in (one, other)]
    loss = max(abs(a - b) / a for a, b in zip(*losses, strict=True))
    return (changed / total) ** 0.5, largest, loss, same


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipes", nargs="*", default=["quickstart", "trec", "shakespeare-char-cpu", "sst2-fill"])
    parser.add_argument("--updates", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for recipe in options.recipes:
            runs = {}
            for name, (devices, arguments) in ARRANGEMENTS.items():
                path = Path(folder) / f"{recipe}-{len(runs)}"
                output, messages, seconds = train(recipe, path, options.updates, devices, arguments)
                runs[name] = Run.open(path)
                checks = re.search(r"(\d+) checks passed", output)
                shapes = int(re.search(r"(\d+) batch shape", output)[1]) if "batch shape" in output else 1
                compiled = len(re.findall(r"Finished XLA compilation of jit\(train_step\)", messages))
                if name.endswith("again"):
                    *_, same = compared(runs[name.removesuffix(" again")], runs[name])
                    verdict = "same bits as before" if same else "DIFFERENT BITS"
                else:
                    weights, largest, loss, same = compared(runs["one device"], runs[name])
                    verdict = (
                        f"state {weights:.1e}, a weight {largest:.1e}, loss {loss:.1e}" if not same else "same bits"
                    )
                print(
                    f"{recipe:22s} {name:26s} {verdict:50s} {checks[1] if checks else 0} checks, compiled {compiled}x "
                    f"for {shapes} shapes, {seconds:.0f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
