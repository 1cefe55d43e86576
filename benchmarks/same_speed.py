"""Compare the speed of this checkout with another one: updates, two searches, and `heedful --help`.

    python benchmarks/same_speed.py OTHER_CHECKOUT [--rounds 3] [--run RUN]

Both checkouts run with the interpreter that runs this script, on the built-in text, one process for each. The two
processes take turns, so that a slow spell of the machine meets both. Each line gives the medians of both and the median
of the ratios of the turns, this checkout over the other, with their quartiles; above 1 this one is faster.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
UPDATES = 60
TRAIN = """
import heedful, json
from heedful.cli import main
folder, updates = sys.argv[1:]
count = ["--train.updates", updates, "--train.validate_every", updates, "--train.validate_sentences", "0"]
size = ["--model.size", "tutorial", "--data.batch_tokens", "4096"]
short = ["--decode.max_length", "2"]  # the text that is scored at the end is not what is measured
quiet = ["--train.check", "false", "--train.examine", "false", "--train.tensorboard", "false"]
def measure():
    main(["train", "quickstart", "--run", folder, "--force", *count, *size, *short, *quiet])
    return json.loads(open(folder + "/log.jsonl").readlines()[-1])["tokens_per_second"]
"""
DECODE = """
import heedful
from heedful.data.phrasebook import phrasebook
translator = heedful.load(sys.argv[1])
lines = [source for source, _ in phrasebook("test", 640)]
def measure():
    began = time.perf_counter()
    translator.translate(lines, beam_size=int(sys.argv[2]), max_length=40, batch_size=64)
    return len(lines) / (time.perf_counter() - began)
measure()  # compiles
"""
HELP = """
import subprocess
def measure():
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "heedful", "--help"], check=True, stdout=subprocess.DEVNULL)
    return 1 / (time.perf_counter() - began)
"""
TAKE_TURNS = """
for _ in sys.stdin:
    print("measured", measure(), flush=True)
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="a checkout of another version of heedful")
    parser.add_argument("--rounds", type=int, default=3, help="turns of training; there are five times as many others")
    parser.add_argument("--run", type=Path, help="a run that both checkouts read: decode with it, and train nothing")
    options = parser.parse_args()
    trees = {"this": HERE, "other": options.other.resolve()}
    with tempfile.TemporaryDirectory() as folder:
        runs = {name: str(options.run.resolve()) if options.run else f"{folder}/{name}" for name in trees}
        if not options.run:
            what = f"{UPDATES} updates of size `tutorial` (target tokens/s)"
            compare(what, TRAIN, trees, runs, [str(UPDATES)], options.rounds)
        turns = 5 * options.rounds
        compare("greedy search, 640 sentences in batches of 64 (sentences/s)", DECODE, trees, runs, ["1"], turns)
        compare("beam of 4, the same (sentences/s)", DECODE, trees, runs, ["4"], turns)
        compare("heedful --help (calls/s)", HELP, trees, runs, [], turns)


def compare(what, code, trees, runs, arguments, turns):
    """Measure code in a process of each checkout, in turns; print medians and ratios."""
    with tempfile.TemporaryFile("w+") as errors, tempfile.TemporaryDirectory() as folder:
        processes = {}
        for name, tree in trees.items():
            environment = os.environ | {"PYTHONPATH": str(tree), "KERAS_BACKEND": "jax", "HEEDFUL_CACHE": folder}
            processes[name] = subprocess.Popen(
                [sys.executable, "-c", f"import sys, time\n{code}{TAKE_TURNS}", runs[name], *arguments],
                cwd=folder, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        speeds = {name: [] for name in trees}
        for turn in range(turns):
            for name in list(trees)[:: 1 if turn % 2 else -1]:
                speeds[name].append(measured(processes[name], errors))
        for process in processes.values():
            process.stdin.close()
            process.wait()
    ratios = [ours / theirs for ours, theirs in zip(speeds["this"], speeds["other"], strict=True)]
    ours, theirs = (statistics.median(speeds[name]) for name in trees)
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 3 else (min(ratios), 0, max(ratios))
    ratio = f"{statistics.median(ratios):.3f} ({low:.3f} to {high:.3f})"
    print(f"{what}: {ours:,.1f} and {theirs:,.1f}, ratio {ratio}", flush=True)


def measured(process, errors):
    """Let a process measure once; return what it reports."""
    print(file=process.stdin, flush=True)
    for line in process.stdout:
        if line.startswith("measured "):
            return float(line.split()[1])
    errors.seek(0)
    raise SystemExit(errors.read())


if __name__ == "__main__":
    main()
