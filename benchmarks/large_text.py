"""Train on millions of pairs: seconds and peak memory of each phase.

    python benchmarks/large_text.py 1 3 10 [--folder FOLDER] [--pack 32]

For each number of millions, it writes that many generated pairs, and then runs each phase in a process of its own:

- encode: the text is read, encoded and written to the cache
- plan: the encoded text is opened again, packed and planned, as at each start
- train: the same, then 50 updates of a small model

Words are drawn by Zipf's law from 20,000; the target has those of the source in reversed order, spelled differently.
Memory is the peak of what the process allocates itself (RssAnon). Pages of mapped files are not counted: the system
drops them when it needs room. The vocabulary is learned once, from the first 100,000 pairs.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

WORDS, CHUNK, UPDATES = 20_000, 100_000, 50
RECIPE = """
name = "large"
[data]
train = ["{folder}/train.a", "{folder}/train.b"]
valid = ["{folder}/valid.a", "{folder}/valid.b"]
max_tokens = 60
batch_tokens = 1024
pack_tokens = {pack}
max_shapes = 5
[tokenizer]
kind = "bpe"
vocab_size = 8000
[model]
size = "toy"
num_layers = 1
max_length = 60
[train]
updates = {updates}
validate_every = {updates}
validate_sentences = 0
warmup_updates = 10
check = false
examine = false
tensorboard = false
"""


def write(folder, name, count, seed):
    """Write `count` pairs to NAME.a and NAME.b."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    spelled = np.random.default_rng(0)
    words = ["".join(spelled.choice(letters, size)) for size in spelled.integers(2, 9, WORDS)]
    others = [word[::-1] + "o" for word in words]
    shares = 1 / np.arange(1, WORDS + 1)
    sums = np.cumsum(shares / shares.sum())
    with (folder / f"{name}.a").open("w") as sources, (folder / f"{name}.b").open("w") as targets:
        for start in range(0, count, CHUNK):
            lengths = rng.integers(3, 22, min(CHUNK, count - start))
            drawn = np.minimum(np.searchsorted(sums, rng.random(lengths.sum())), WORDS - 1).tolist()
            begin = 0
            lines = [[], []]
            for end in np.cumsum(lengths).tolist():
                chosen, begin = drawn[begin:end], end
                lines[0].append(" ".join([words[one] for one in chosen]))
                lines[1].append(" ".join([others[one] for one in reversed(chosen)]))
            for file, side in zip((sources, targets), lines, strict=True):
                file.write("\n".join(side) + "\n")


class Peak:
    """A context that notes the peak of the memory that this process allocates itself, in bytes."""

    def __enter__(self):
        self.peak, self._ended = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()

    def _watch(self):
        while not self._ended.wait(0.02):
            status = Path("/proc/self/status").read_text()
            self.peak = max(self.peak, 1024 * int(re.search(r"RssAnon:\s+(\d+)", status)[1]))


def run_phase(phase, folder):
    """Run a phase in this process; print its figures as JSON."""
    from heedful.config import Config
    from heedful.data.tokenizer import Tokenizer
    from heedful.runs.run import Run
    from heedful.workflows import Training

    config = Config.from_toml(folder / "large.toml")
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    with Peak() as before:
        time.sleep(0.1)
    began = time.monotonic()
    with Peak() as memory:
        training = Training(Run.create(folder / "run", config, tokenizer, tokenizer), report=lambda line: None)
        if phase == "train":
            training.train()
    result = {"seconds": time.monotonic() - began, "peak": memory.peak - before.peak}
    print(json.dumps(result))


def measured(millions, folder, pack):
    """Return the figures of each phase for so many million pairs."""
    from heedful.config import Config
    from heedful.data.corpus import read_pairs
    from heedful.data.tokenizer import Tokenizer

    count = int(millions * 1_000_000)
    began = time.monotonic()
    write(folder, "train", count, 1)
    write(folder, "valid", 500, 2)
    print(f"{millions:g} million pairs written in {time.monotonic() - began:.0f} s", file=sys.stderr)
    (folder / "large.toml").write_text(RECIPE.format(folder=folder, pack=pack, updates=UPDATES))
    config = Config.from_toml(folder / "large.toml")
    if not (folder / "tokenizer.json").exists():
        pairs = read_pairs([folder / "train.a", folder / "train.b"])
        lines = (line for _, pair in zip(range(100_000), pairs, strict=False) for line in pair)
        Tokenizer.train(lines, **config.tokenizer.keywords()).save(folder / "tokenizer.json")
    results = {}
    for phase in ("encode", "plan", "train"):
        command = [sys.executable, __file__, "--phase", phase, "--folder", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        results[phase] = json.loads(done.stdout.splitlines()[-1])
        one = results[phase]
        print(f"{millions:g} M {phase:8s} {one['seconds']:8.1f} s  {one['peak'] / 2**20:8.0f} MiB", flush=True)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("millions", type=float, nargs="*", default=[1.0])
    parser.add_argument("--folder", type=Path, help="where to write the text, by default a temporary folder")
    parser.add_argument("--pack", type=int, default=0, help="data.pack_tokens")
    parser.add_argument("--phase", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.phase:
        run_phase(options.phase, options.folder)
        return
    with tempfile.TemporaryDirectory() as temporary:
        for millions in options.millions:
            folder = options.folder or Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            measured(millions, folder, options.pack)


if __name__ == "__main__":
    main()
