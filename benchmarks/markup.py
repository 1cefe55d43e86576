"""Placeholders and tags in the translations of real strings of software: are they all there, and is the rest as good?

    python -m benchmarks.markup RUN STRINGS.tsv

The strings may come from the .mo files of any distribution. What counts as a placeholder is defined here, not by
heedful. `plain` is the same model without markup handling.
"""

import argparse
import collections
import re
import time
from pathlib import Path

import sacrebleu

from heedful.data.corpus import read_pairs
from heedful.inference.translator import Translator
from heedful.runs.run import Run

PLACEHOLDER = re.compile(
    r"%%|%(?:\d+\$)?(?:\(\w+\))?[-+#0]*\d*(?:\.\d+)?(?:hh|h|ll|l|L|z|j|t)?[diouxXeEfFgGcrspaA]|%\d{1,2}(?![^\W_])|"
    r"\{[\w.]*\}|\$\{?[A-Z_]+\}?|https?://[^\s<>\"']+[\w/]"
)
TAG = re.compile(r"<(/?)([A-Za-z][\w:-]*)((?:\s+[\w:-]+=(?:\"[^\"]*\"|'[^']*'))*)\s*(/?)>")


def well_formed(text: str) -> bool:
    """Return whether the tags of a text are nested pairs."""
    opened = []
    for match in TAG.finditer(text):
        closing, name, _, alone = match.groups()
        if alone or name.lower() in ("br", "img", "hr", "wbr"):
            continue
        if not closing:
            opened.append(name)
        elif not opened or opened.pop() != name:
            return False
    return not opened


def without(text: str) -> str:
    """Return a text without placeholders and tags."""
    return " ".join(PLACEHOLDER.sub(" ", TAG.sub(" ", text)).split())


def main() -> None:
    """Print for each kind of decoding how many strings keep their markup, chrF of the rest, and seconds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("strings", type=Path)
    options = parser.parse_args()
    sources, references = zip(*read_pairs([options.strings]), strict=True)
    translator = Translator.from_run(Run.open(options.run))
    tagged = [index for index, text in enumerate(sources) if TAG.search(text) and well_formed(text)]
    with_placeholders = sum(bool(PLACEHOLDER.search(text)) for text in sources)
    print(f"{len(sources):,} strings, {with_placeholders:,} with placeholders, {len(tagged):,} with tag pairs")
    list(translator.translate(sources[:64]))  # compile
    for markup in ("none", "tags"):
        began = time.monotonic()
        results = translator.translate(sources, warn=lambda message: None, markup=markup)
        seconds = time.monotonic() - began
        counts = [[collections.Counter(PLACEHOLDER.findall(text)) for text in side] for side in (sources, results)]
        once = sum(one == other for one, other in zip(*counts, strict=True))
        tags = [
            [collections.Counter(m.group() for m in TAG.finditer(text)) for text in side] for side in (sources, results)
        ]
        formed = sum(well_formed(results[index]) and tags[0][index] == tags[1][index] for index in tagged)
        chrf = sacrebleu.corpus_chrf([without(text) for text in results], [[without(text) for text in references]])
        whole = sacrebleu.corpus_chrf(results, [list(references)])
        print(
            f"{markup:5s} placeholders exactly once {once:,} of {len(sources):,}; tags well-formed {formed:,} of "
            f"{len(tagged):,}; chrF around them {chrf.score:.2f}, with them {whole.score:.2f}; {seconds:.1f} s"
        )
        if markup == "tags":
            for index, (one, other) in enumerate(zip(*counts, strict=True)):
                if one != other or (index in tagged and tags[0][index] != tags[1][index]):
                    print(f"  {sources[index]!r} -> {results[index]!r}")


if __name__ == "__main__":
    main()
