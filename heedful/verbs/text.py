"""The verbs of one-sided models: generate, fill, classify, embed."""

import json
import sys

from heedful import settings
from heedful.arriving import windows
from heedful.cache import keep_compilations
from heedful.generation.generator import Generator
from heedful.reading.filler import Filler, TooLong
from heedful.reading.labeller import Labeller
from heedful.run import Run
from heedful.special_tokens import MASK
from heedful.verbs import lines

WINDOW = 1024  # lines answered together


def generate(options):
    """Continue prompts."""
    run = Run.open(options.run).of_task("generate")
    decode = settings.given_options(run.config, "decode", options)
    prompts = options.prompts or list(lines.read([]))
    keep_compilations()
    lines.note_idle_devices()
    generator = Generator.from_run(run)
    generator.decode = decode
    several = len(prompts) > 1 or decode.n_best > 1
    for number, found in enumerate(generator.candidates(prompts, lines.warn, scored=options.scores), start=1):
        for text, score in found:
            if several or options.scores:
                print(f"--- {number}" + (f"\t{score:.4f}" if options.scores else ""))
            print(text)


def fill(options):
    """Fill the gaps of texts."""
    run = Run.open(options.run).of_task("fill")
    keep_compilations()
    lines.note_idle_devices()
    filler = Filler.from_run(run)
    for number, text in enumerate(lines.read([]) if options.text is None else [options.text], start=1):
        if options.text is None and MASK not in text:
            lines.warn(f"line {number} has no {MASK}: it stays as it is.")
            whole, gaps = text, []
        else:
            try:
                whole, gaps = filler.fill(text, options.count)
            except TooLong as error:
                if options.text is not None:
                    raise
                lines.warn(f"line {number}: {error} It stays as it is.")
                whole, gaps = text, []
        print(json.dumps({"text": whole, "gaps": gaps}, ensure_ascii=False) if options.json else _filled(whole, gaps))
        sys.stdout.flush()  # who asks may wait for the answer


def _filled(text, gaps):
    """Return a text whose gaps are filled, and below it the candidates for each gap."""
    shown = [
        f"    gap {gap}\t{probability:.4f}\t{token.strip()}"
        for gap, candidates in enumerate(gaps, start=1)
        for token, probability in candidates
    ]
    return "\n".join([text, *shown])


def classify(options):
    """Write a class for each line."""
    run = Run.open(options.run).of_task("classify")
    keep_compilations()
    lines.note_idle_devices()
    labeller = Labeller.from_run(run)
    for window in windows(lines.read(options.files), WINDOW):
        for label, probability in labeller.classify(window):
            print(f"{label}\t{probability:.4f}" if options.scores else label)
        sys.stdout.flush()
    _warn_of_cut(labeller)


def embed(options):
    """Write a vector for each line."""
    run = Run.open(options.run).of_task("fill")
    keep_compilations()
    lines.note_idle_devices()
    filler = Filler.from_run(run)
    for window in windows(lines.read(options.files), WINDOW):
        for vector in filler.embed(window, options.pooling):
            print("\t".join(f"{value:.6g}" for value in vector))
        sys.stdout.flush()
    _warn_of_cut(filler)


def _warn_of_cut(reader):
    if reader.cut:
        lines.warn(f"{reader.cut} lines have more tokens than the model reads: only their beginning was read.")
