"""The speed of a training with and without a browser that follows its page, on one machine.

    python benchmarks/follow.py [--windows 5] [--seconds 20]

Trains the quickstart recipe, serves its run, and alternates between windows in which a client reads the run's event
stream and windows without one. Prints the updates per second of each window, and the median of the paired ratios.
"""

import argparse
import contextlib
import json
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

HEEDFUL = [sys.executable, "-m", "heedful"]
TRAINING = [
    "--train.updates", "1000000", "--train.validate_every", "100000", "--train.validate_sentences", "0",
    "--train.check", "false", "--train.examine", "false", "--train.tensorboard", "false",
    "--train.schedule", "constant", "--train.learning_rate", "0.0001",
]  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=5, help="pairs of windows")
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        short = ["--train.updates", "20", "--train.validate_every", "20", *TRAINING[4:]]
        subprocess.run([*HEEDFUL, "train", "quickstart", "--run", run, *short], check=True, stdout=subprocess.DEVNULL)
        with training(run) as progress, served(run) as address:
            ratios = list(compare(run, progress, address, options))
    print(f"median of the ratios, followed over alone: {statistics.median(ratios):.3f}")


@contextlib.contextmanager
def training(run):
    """Continue the training of a run in another process; yield its progress log, which has begun."""
    process = subprocess.Popen([*HEEDFUL, "train", "--resume", run, *TRAINING], stdout=subprocess.DEVNULL)
    log = run / "progress.jsonl"
    before = log.stat().st_size if log.exists() else 0
    while not log.exists() or log.stat().st_size < before + 500:  # some lines
        if process.poll() is not None:
            raise SystemExit("the training ended")
        time.sleep(1)
    try:
        yield log
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


@contextlib.contextmanager
def served(run):
    """Serve a run; yield the address of its events."""
    process = subprocess.Popen([*HEEDFUL, "serve", run, "--port", "0"], stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if match := re.search(r"http://127\.0\.0\.1:\d+", line):
            break
    try:
        yield f"{match[0]}/api/runs/{run.name}/events"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def compare(run, log, address, options):
    """Print and yield the ratio of each pair of windows."""
    for number in range(options.windows):
        rates = {}
        for followed in (True, False) if number % 2 else (False, True):
            with following(address) if followed else contextlib.nullcontext() as seen:
                time.sleep(2)
                first = last_line(log)
                time.sleep(options.seconds)
                last = last_line(log)
            rates[followed] = (last["update"] - first["update"]) / (last["seconds"] - first["seconds"])
            if followed and not seen:
                raise SystemExit("the client saw no event")
        print(f"followed {rates[True]:.3f} updates/s, alone {rates[False]:.3f}", flush=True)
        yield rates[True] / rates[False]


@contextlib.contextmanager
def following(address):
    """Read the event stream in a thread; yield the list of what it has seen."""
    seen, response = [], urllib.request.urlopen(address)  # noqa: S310 - our own server

    def read():
        with contextlib.suppress(ValueError, OSError, AttributeError):  # closed
            seen.extend(response)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    yield seen
    response.fp.raw._sock.shutdown(2)
    thread.join()


def last_line(log):
    """Return the newest entry of a log."""
    return json.loads(log.read_text(encoding="utf-8").rsplit("\n", 2)[-2])


if __name__ == "__main__":
    main()
