"""Compare the speed of this checkout with another one: an update, two searches, and `heedful --help`, alternating.

    python benchmarks/same_speed.py OTHER_CHECKOUT [--rounds 3]

Both run with the interpreter that runs this script, on the built-in text. Each line gives the medians of both and the
median of the ratios of the rounds, this checkout over the other; above 1 this one is faster.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
UPDATES = 60
TRAIN = """
import heedful, json, sys
from heedful.cli import main
folder, updates = sys.argv[1:]
count = ["--train.updates", updates, "--train.validate_every", updates, "--train.validate_sentences", "0"]
size = ["--model.size", "tutorial", "--data.batch_tokens", "4096"]
short = ["--decode.max_length", "2"]  # the text that is scored at the end is not what is measured
quiet = ["--train.check", "false", "--train.examine", "false", "--train.tensorboard", "false"]
main(["train", "quickstart", "--run", folder, "--force", *count, *size, *short, *quiet])
print(json.loads(open(folder + "/log.jsonl").readlines()[-1])["tokens_per_second"])
"""
DECODE = """
import heedful, sys, time
from heedful.data.phrasebook import phrasebook
translator = heedful.load(sys.argv[1])
lines = [source for source, _ in phrasebook("test", 640)]
for _ in range(2):
    began = time.perf_counter()
    translator.translate(lines, beam_size=int(sys.argv[2]))
    seconds = time.perf_counter() - began
print(len(lines) / seconds)
"""
HELP = """
import subprocess, sys, time
began = time.perf_counter()
for _ in range(10):
    subprocess.run([sys.executable, "-m", "heedful", "--help"], check=True, stdout=subprocess.DEVNULL)
print(10 / (time.perf_counter() - began))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="a checkout of another version of heedful")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    trees = {"this": HERE, "other": options.other.resolve()}
    with tempfile.TemporaryDirectory() as folder:
        work = {
            f"an update of size `tutorial`, {UPDATES} of them (target tokens/s)": (TRAIN, "{run}", UPDATES),
            "greedy search, 640 sentences in batches of 64 (sentences/s)": (DECODE, "{run}", 1),
            "beam of 4, the same (sentences/s)": (DECODE, "{run}", 4),
            "heedful --help (calls/s)": (HELP,),
        }
        for what, (code, *arguments) in work.items():
            speeds = {name: [] for name in trees}
            for _ in range(options.rounds):
                for name, tree in trees.items():
                    given = [str(argument).format(run=f"{folder}/{name}") for argument in arguments]
                    speeds[name].append(measure(code, tree, folder, given))
            ratios = [ours / theirs for ours, theirs in zip(speeds["this"], speeds["other"], strict=True)]
            medians = [statistics.median(speeds[name]) for name in trees]
            shown = ", ".join(f"{ratio:.3f}" for ratio in ratios)
            print(
                f"{what}: {medians[0]:,.1f} and {medians[1]:,.1f}, ratio {statistics.median(ratios):.3f} ({shown})",
                flush=True,
            )


def measure(code, tree, folder, arguments):
    """Run code in a process of a checkout; return the number on its last line."""
    environment = os.environ | {"PYTHONPATH": str(tree), "KERAS_BACKEND": "jax", "HEEDFUL_CACHE": f"{folder}/cache"}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
