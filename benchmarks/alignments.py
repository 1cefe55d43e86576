"""Word alignments of a run against those of eflomal, on the first validation pairs.

    python -m benchmarks.alignments RUN [--eflomal eflomal-align] [--count 500]

eflomal (PyPI, GPL: install it in an environment of its own) learns from these pairs and the training text. Links of
both of its directions are sure, links of one are possible, as in Och and Ney 2003, "A Systematic Comparison of Various
Statistical Alignment Models".
"""

import argparse
import subprocess
import tempfile
from pathlib import Path

from heedful.data.markup.words import words_of
from heedful.inference.translator import Translator
from heedful.runs.run import Run
from heedful.tasks.translation_data import corpora

Links = list[set[tuple[int, int]]]


def aligned_by_eflomal(command: str, pairs: list[tuple[str, str]]) -> tuple[Links, Links]:
    """Return for each pair the links of both directions of eflomal."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for side, file in enumerate(("source", "target")):
            lines = [" ".join(pair[side][start:end] for start, end in words_of(pair[side])) for pair in pairs]
            (folder / file).write_text("".join(f"{line.lower()}\n" for line in lines), encoding="utf-8")
        files = {"-s": "source", "-t": "target", "-f": "forward", "-r": "reverse"}
        arguments = [word for option, file in files.items() for word in (option, str(folder / file))]
        subprocess.run([command, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        forward, reverse = (
            [{tuple(map(int, link.split("-"))) for link in line.split()} for line in (folder / file).open()]
            for file in ("forward", "reverse")
        )
    return forward, reverse


def main():
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--eflomal", default="eflomal-align", help="its command")
    parser.add_argument("--count", type=int, default=500, help="pairs")
    options = parser.parse_args()
    run = Run.open(options.run)
    parts = corpora(run.config)
    judged = [row[:2] for row in parts["valid"]][: options.count]
    forward, reverse = aligned_by_eflomal(options.eflomal, [*judged, *(row[:2] for row in parts["train"])])
    written: Links = [set(map(tuple, one)) for one in Translator.from_run(run).aligner.links(judged)]
    pairs = list(zip(forward, reverse, written, strict=False))
    sure = sum(len(one & other) for one, other, _ in pairs)
    links = sum(map(len, written))
    hits = sum(len(ours & one & other) for one, other, ours in pairs)
    possible_hits = sum(len(ours & (one | other)) for one, other, ours in pairs)
    print(f"{links:,} links, {sure:,} of both directions of eflomal")
    print(f"alignment error rate {1 - (hits + possible_hits) / (links + sure):.3f}")
    print(f"F1 with the links of both directions {2 * hits / (links + sure):.3f}")


if __name__ == "__main__":
    main()
