"""Plant faults in real text and count those that the doctor finds, or measure its speed and memory.

    HEEDFUL_DATA=data python benchmarks/doctor.py [--share 0.01] [--seed 1]
    python benchmarks/doctor.py --large 1.0

The first form takes Multi30k German-English and the Python documentation Portuguese-English, and changes the given
share of rows for each kind of fault: stretches of 5 to 60 rows whose target is one row late, rows that repeat an
earlier one, rows with an empty side, rows with a target in another language (French, or the source's), rows of the test
text. It prints recall (planted rows that are found) and precision (found rows that were planted) by kind; rows that
were empty, repeated or overlapping before are not counted. The last line has the lowest recall and precision.

The second form times `heedful doctor` on a generated parallel text of that many gigabytes, both sides together.
"""

import argparse
import contextlib
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from heedful.data.corpus import read_pairs, resolve_all
from heedful.data.doctor.examination import examine
from heedful.data.doctor.rows import Rows
from heedful.data.phrasebook import phrasebook
from heedful.data.text_files import read_lines

TEXTS = {
    "Multi30k": ["multi30k/{}.de.gz", "multi30k/{}.en.gz", "test_2016_flickr"],
    "Python documentation": ["pydocs_pt_en/{}.pt.gz", "pydocs_pt_en/{}.en.gz", "test"],
}
OTHER_LANGUAGE = "multi30k/train.fr.gz"
EXACT = ("empty", "duplicate", "overlap")  # findings of these kinds in the original text are correct


def plant(pairs, test, others, share, draw):
    """Return a copy of `pairs` with faults, and the faulty rows by kind."""
    rows, count = list(pairs), int(len(pairs) * share)
    planted = {kind: set() for kind in ("misaligned", "duplicate", "empty", "language", "overlap")}
    taken = set()
    while len(planted["misaligned"]) < count:
        length = min(draw.randint(5, 60), max(5, count - len(planted["misaligned"])))
        start = draw.randrange(len(rows) - length)
        stretch = range(start, start + length)
        if not taken.isdisjoint(range(start - 1, start + length + 1)):
            continue
        targets = [rows[i][1] for i in stretch]
        for i, target in zip(stretch, [targets[-1], *targets], strict=False):
            rows[i] = rows[i][0], target
        taken |= set(stretch)
        planted["misaligned"] |= set(stretch)
    for kind in ("duplicate", "empty", "language", "overlap"):
        free = [i for i in range(1, len(rows)) if i not in taken]
        chosen = draw.sample(free, count)
        planted[kind], taken = set(chosen), taken | set(chosen)
    for i in planted["empty"]:
        rows[i] = draw.choice([("", rows[i][1]), (rows[i][0], "")])
    for i in planted["language"]:
        rows[i] = rows[i][0], draw.choice([draw.choice(others), draw.choice(pairs)[0]])
    for i, pair in zip(sorted(planted["overlap"]), draw.sample(test, count), strict=True):
        rows[i] = pair
    for i in sorted(planted["duplicate"]):
        rows[i] = rows[draw.choice([j for j in range(max(0, i - 2000), i) if j not in taken])]
    return rows, planted


def write(folder, rows):
    """Write rows as two parallel files; return `Rows` of them."""
    paths = [folder / "text.source", folder / "text.target"]
    for side, path in enumerate(paths):
        path.write_text("".join(f"{row[side]}\n" for row in rows), encoding="utf-8")
    return Rows.of_pairs(paths)


def faults(share, seed):
    """Print precision and recall by text and kind."""
    others = list(read_lines(*resolve_all([OTHER_LANGUAGE])))
    worst = [1.0, 1.0]
    for name, (source, target, test_part) in TEXTS.items():
        files, test_files = ([side.format(part) for side in (source, target)] for part in ("train", test_part))
        pairs, test = (list(read_pairs(resolve_all(paths))) for paths in (files, test_files))
        rows, planted = plant(pairs, test, others, share, random.Random(seed))
        against = {"test": Rows.of_pairs(test_files)}
        before = examine(Rows.of_pairs(files), against)
        with tempfile.TemporaryDirectory() as folder:
            after = examine(write(Path(folder), rows), against)
        print(f"{name}: {len(rows):,} rows, {sum(map(len, planted.values())):,} of them changed, {after.seconds:.1f} s")
        for kind, wanted in planted.items():
            natural = set(before.rows_of(kind).tolist()) - wanted if kind in EXACT else set()
            detected = set(after.rows_of(kind).tolist()) - natural
            right = len(detected & wanted)
            recall, precision = right / len(wanted), right / max(1, len(detected))
            worst = [min(worst[0], recall), min(worst[1], precision)]
            print(
                f"  {kind:10s}  planted {len(wanted):4d}  found {len(detected):4d}  "
                f"recall {recall:.3f}  precision {precision:.3f}"
            )
        rest = ", ".join(
            f"{detected.kind} {len(detected.rows)}" for detected in after.findings if detected.kind not in planted
        )
        print(f"  also found: {rest or 'nothing'}", flush=True)
    print(f"lowest recall {worst[0]:.3f}, lowest precision {worst[1]:.3f}")


def large(gigabytes):
    """Time the command on a generated text."""
    draw = random.Random(1)
    sentences = list(phrasebook("train", 100_000))
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / "text.pt", Path(folder) / "text.en"]
        size = count = 0
        with contextlib.ExitStack() as files:
            sides = [files.enter_context(path.open("w", encoding="utf-8")) for path in paths]
            while size < gigabytes * 1e9:
                three = draw.sample(sentences, 3)
                for side, file in enumerate(sides):
                    size += file.write(" ".join(pair[side] for pair in three) + f" {count}\n")
                count += 1
        print(f"{count:,} rows", flush=True)
        began = time.monotonic()
        subprocess.run([sys.executable, "-m", "heedful", "doctor", *map(str, paths)], check=True)
        seconds = time.monotonic() - began
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    print(f"{size / 1e9:.2f} GB in {seconds:.0f} s ({size / 1e6 / seconds:.2f} MB/s), peak memory {peak:.2f} GiB")


def main():
    """Run the benchmark that the options select."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--large", type=float, metavar="GIGABYTES")
    options = parser.parse_args()
    if options.large:
        large(options.large)
    else:
        faults(options.share, options.seed)


if __name__ == "__main__":
    main()
