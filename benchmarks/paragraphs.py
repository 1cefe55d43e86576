"""Paragraphs of two to five sentences against the same sentences one a line: sentences out, chrF, seconds.

HEEDFUL_DATA=... python -m benchmarks.paragraphs runs/multi30k-de-en
"""

import argparse
import random
import time

import sacrebleu

from heedful.data.corpus import resolve
from heedful.data.sentences import sentences_of
from heedful.data.text_files import read_lines
from heedful.inference.translator import Translator
from heedful.runs.run import Run

ENDS = (".", "!", "?", '."', ".“")  # of sentences: without one, no reader could tell where the next one begins
TESTS = ("test_2016_flickr", "test_2017_flickr", "test_2018_flickr", "val")


def paragraphs(source, target, count):
    """Return lists of two to five (source, reference) pairs, drawn at random."""
    pairs = []
    for name in TESTS:
        sides = [resolve(f"multi30k/{name}.{side}.gz") for side in (source, target)]
        if all(path.is_file() for path in sides):
            pairs += [pair for pair in zip(*map(read_lines, sides), strict=True) if pair[0].rstrip().endswith(ENDS)]
    if not pairs:
        raise SystemExit("There is no multi30k in HEEDFUL_DATA.")
    draw = random.Random(0)
    return [draw.choices(pairs, k=draw.randint(2, 5)) for _ in range(count)]


def main():
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--languages", nargs=2, default=("de", "en"))
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=2, help="timed passes of both, alternating")
    options = parser.parse_args()
    source, target = options.languages
    texts = paragraphs(source, target, options.count)
    lines = [" ".join(pair[0] for pair in text) for text in texts]
    sentences = [pair[0] for text in texts for pair in text]
    references = [" ".join(pair[1] for pair in text) for text in texts]
    translator = Translator.from_run(Run.open(options.run))
    seconds = {"lines": [], "sentences": []}
    for _ in range(options.repeats + 1):  # the first pass compiles
        for name, given in (("lines", lines), ("sentences", sentences)):
            began = time.perf_counter()
            results = translator.translate(given)
            seconds[name].append(time.perf_counter() - began)
            if name == "lines":
                joined = results
            else:
                alone = iter(results)
    one_by_one = [" ".join(next(alone) for _ in text) for text in texts]
    unsplit = translator.translate(lines, split="never")
    print(f"{len(lines):,} paragraphs, {len(sentences):,} sentences")
    for name, results in (("split", joined), ("one a line", one_by_one), ("--split never", unsplit)):
        counts = [len(sentences_of(text, target)) for text in results]
        same = sum(count == len(text) for count, text in zip(counts, texts, strict=True)) / len(texts)
        chrf = sacrebleu.corpus_chrf(results, [references]).score
        print(f"{name:14s} {sum(counts):,} sentences out, as many as in for {same:.2%}; chrF {chrf:.2f}")
    print(f"equal texts: {sum(a == b for a, b in zip(joined, one_by_one, strict=True)) / len(texts):.2%}")
    split, alone = (min(seconds[name][1:]) for name in ("lines", "sentences"))
    print(f"seconds: split {split:.1f}, one a line {alone:.1f}, ratio {split / alone:.3f}")


if __name__ == "__main__":
    main()
