"""Kill a training with SIGKILL in the middle of an epoch, resume it, and compare with one that was never stopped.

    python benchmarks/kill_and_resume.py [--updates 120]

Trains `quickstart` three times over in processes of their own (whole; killed; resumed), dropout on. The last line gives
the largest difference over every variable of the final states: weights, optimizer, dropout seeds.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from heedful.run import Run


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=120)
    options = parser.parse_args()
    heedful = [sys.executable, "-m", "heedful.cli", "train"]
    settings = ["--train.updates", str(options.updates), "--train.validate_every", "40", "--model.dropout", "0.1"]
    settings += ["--data.sentences", "10000"]  # 30 batches an epoch: the kill falls into the middle of one
    with tempfile.TemporaryDirectory() as temporary:
        whole, killed = Path(temporary) / "whole", Path(temporary) / "killed"
        subprocess.run([*heedful, "quickstart", "--run", str(whole), *settings], check=True, stdout=subprocess.DEVNULL)
        process = subprocess.Popen([*heedful, "quickstart", "--run", str(killed), *settings], stdout=subprocess.DEVNULL)
        while not (killed / "state" / "00000040.safetensors").exists():
            time.sleep(0.05)
        time.sleep(3)  # some updates after the state of update 40
        process.send_signal(signal.SIGKILL)
        process.wait()
        last = Run.open(killed).states()[-1].stem
        print(f"killed; the last state is that of update {int(last)}", flush=True)
        subprocess.run([*heedful, "--resume", str(killed)], check=True, stdout=subprocess.DEVNULL)
        one, other = (Run.open(path).last_state()[0] for path in (whole, killed))
        assert one.keys() == other.keys()
        difference = max(float(np.abs(one[k].astype("float64") - other[k].astype("float64")).max()) for k in one)
        print(f"{len(one)} variables after {options.updates} updates, largest difference {difference}")


if __name__ == "__main__":
    main()
