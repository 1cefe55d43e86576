"""Compare this checkout with another one bit by bit: trained weights, translations, scores, resumed trainings.

    python benchmarks/same_bits.py OTHER_CHECKOUT

Both checkouts run with the interpreter that runs this script. Each line of the output names what was compared, and
whether it is equal. The exit code is 1 if anything differs. Run it on one machine: processors differ in the last bit.
Both train on the built-in phrasebook of this checkout, whose sentences may differ from the other's.
"""

import argparse
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import safetensors.numpy

from heedful.data.phrasebook import phrasebook

HERE = Path(__file__).resolve().parents[1]
RECIPES = {"quickstart": 60, "trec": 60, "shakespeare-char-cpu": 30, "trec-fill": 30}  # updates
# Fixed, so that results of different days can be compared.
PINNED = ["--data.max_shapes", "2", "--train.warmup_updates", "200", "--decode.batch_size", "64"]
MORE = 20  # updates of a resumed training
SENTENCES = 500
PARTS = {"train": 40_000, "valid": 500, "test": SENTENCES}  # sentences of the phrasebook
QUIET = ["--train.check", "false", "--train.examine", "false", "--train.tensorboard", "false"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="a checkout of another version of heedful")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        same = list(compare(options.other.resolve(), Path(folder)))
    sys.exit(not all(same))


def compare(other, folder):
    """Compare two checkouts; print and yield whether each result is equal."""
    trees = {"old": other, "new": HERE}

    def both(*arguments, stdin=None):
        return [heedful(trees[name], folder, *(str(a).format(name) for a in arguments), stdin=stdin) for name in trees]

    write_phrasebook(folder)
    files = [f'--data.{part}=["{folder}/{part}.pt", "{folder}/{part}.en"]' for part in PARTS]
    for recipe, updates in RECIPES.items():
        counts = ["--train.updates", updates, "--train.validate_every", updates]
        text = ["--data.corpus", "files", *files, *PINNED] if recipe == "quickstart" else []
        path = next(other.glob(f"heedful/**/recipes/{recipe}.toml"), None)  # the same for both
        if path is None:
            raise SystemExit(f"{other} has no recipe {recipe}.")
        both("train", path, "--run", f"{{}}-{recipe}", *counts, *QUIET, *text)
        states = [state(folder / f"{name}-{recipe}", updates) for name in trees]
        yield report(f"{recipe}: weights and optimizer after {updates} updates", *states)
    lines = (folder / "test.pt").read_text(encoding="utf-8")
    run = "{}-quickstart"
    yield report(f"greedy translations of {SENTENCES} sentences", *both("translate", run, stdin=lines))
    beams = ("--beam-size", "4", "--n-best", "4")
    yield report("n-best lists of a beam of 4, with scores", *both("translate", run, *beams, stdin=lines))
    opened = folder / "opened"  # a run that the old checkout has written
    shutil.copytree(folder / "old-quickstart", opened)
    yield report("scores of a run of the old checkout", *(scores(trees[name], folder, opened) for name in trees))
    shutil.copytree(opened, folder / "continued")
    total = RECIPES["quickstart"] + MORE
    counts = ("--train.updates", total, "--train.validate_every", total)
    for name, path in (("old", opened), ("new", folder / "continued")):
        heedful(trees[name], folder, "train", "--resume", path, *counts)
    continued = (state(path, total) for path in (opened, folder / "continued"))
    yield report(f"{MORE} more updates of a run of the old checkout", *continued)


def heedful(tree, folder, *arguments, stdin=None):
    """Run a command of a checkout in `folder`; return its standard output."""
    environment = os.environ | {
        "PYTHONPATH": str(tree), "KERAS_BACKEND": "jax", "HEEDFUL_CACHE": str(folder / "cache"),
        "HEEDFUL_DATA": str(Path(os.environ.get("HEEDFUL_DATA", "data")).resolve()),
    }  # fmt: skip
    command = [sys.executable, "-m", "heedful", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, env=environment, input=stdin, text=True, capture_output=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} in {tree}:\n{done.stderr}")
    return done.stdout


def state(run, update):
    """Return the arrays of a training state as bytes by name."""
    arrays = safetensors.numpy.load_file(run / "state" / f"{update:08d}.safetensors")
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in arrays.items()}


def scores(tree, folder, run):
    """Return the lines of `evaluate` except those that report times."""
    lines = heedful(tree, folder, "evaluate", run).splitlines()
    return [line for line in lines if not line.startswith(("seconds", "output_tokens"))]


def write_phrasebook(folder):
    """Write the parts of the built-in phrasebook to files."""
    for part, count in PARTS.items():
        pairs = phrasebook(part, count)
        for side, suffix in enumerate(("pt", "en")):
            lines = "".join(f"{pair[side]}\n" for pair in pairs)
            (folder / f"{part}.{suffix}").write_text(lines, encoding="utf-8")


def report(what, old, new):
    """Print whether two results are equal, and return it."""
    same = old == new
    detail = ""
    if not same and isinstance(old, dict):
        differ = [name for name in old.keys() | new.keys() if old.get(name) != new.get(name)]
        detail = f" ({len(differ)} of {len(old)} arrays, such as {min(differ)})"
    elif not same:
        before, after = (text.splitlines() if isinstance(text, str) else text for text in (old, new))
        pairs = [(one, other) for one, other in itertools.zip_longest(before, after) if one != other]
        detail = f" ({len(pairs)} of {len(before)} lines, such as {pairs[0][0]!r} and {pairs[0][1]!r})"
    print(f"{'equal' if same else 'DIFFERENT'}: {what}{detail}", flush=True)
    return same


if __name__ == "__main__":
    main()
