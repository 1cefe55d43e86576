"""BLEU and speed of teachers and students, in heedful and in CTranslate2, one after the other in turn.

    python -m benchmarks.distillation RUN [RUN ...] --files test.de test.en [--repeats 3]

Each run translates all lines greedily and with a beam of 5. The speed is that of the output, in tokens of the own
vocabulary of each run and in lines, the median of the repeats; the first pass compiles and is not timed.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from heedful.data.corpus import Corpus
from heedful.inference.translator import Translator
from heedful.interop.export import ctranslate2
from heedful.interop.export.ctranslate2_search import ctranslate2_translator
from heedful.interop.export.plain_search import plain_search
from heedful.runs.run import Run
from heedful.tasks.translation_scores import bleu_tokenizer_of
from heedful.training.evaluation import score_text

BEAMS = (1, 5)
QUANTIZATIONS = ("float32", "int8")


def translators(run, folder):
    """Return translators by engine and beam, and the bytes of the weights by engine."""
    made = {("heedful", beam): Translator.from_run(run, plain_search(run, beam)) for beam in BEAMS}
    sizes = {"heedful": run.weights_path().stat().st_size}
    for quantization in QUANTIZATIONS:
        name = f"ctranslate2 {quantization}"
        exported = ctranslate2.export(run, folder / quantization, quantization)
        sizes[name] = (exported / "model.bin").stat().st_size
        made |= {(name, beam): ctranslate2_translator(run, plain_search(run, beam), exported) for beam in BEAMS}
    return made, sizes


def main():
    """Print a line for each run, engine and beam."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--files", nargs=2, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    pairs = list(Corpus.from_files(options.files))
    sources, references = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    with tempfile.TemporaryDirectory() as folder:
        work = []
        for number, path in enumerate(options.runs):
            run = Run.open(path)
            made, sizes = translators(run, Path(folder) / str(number))
            work += [(run, *key, translator, sizes[key[0]]) for key, translator in made.items()]
        written = [translator.translate(sources) for _, _, _, translator, _ in work]
        seconds = [[] for _ in work]
        for _ in range(options.repeats):
            for times, (_, _, _, translator, _) in zip(seconds, work, strict=True):
                began = time.perf_counter()
                translator.translate(sources)
                times.append(time.perf_counter() - began)
    for (run, engine, beam, _, size), texts, times in zip(work, written, seconds, strict=True):
        tokenize = bleu_tokenizer_of(run.config, references)
        bleu = score_text(texts, references, run.target_tokenizer.lowercase, tokenize=tokenize)["bleu"]
        tokens = sum(map(len, run.target_tokenizer.encode_batch(texts)))
        took = statistics.median(times)
        print(
            f"{run.path}\t{engine}\tbeam {beam}\t{size / 1e6:.2f} MB\tBLEU {bleu:.2f}\t{tokens / took:,.0f} tokens/s"
            f"\t{len(sources) / took:,.1f} lines/s",
            flush=True,
        )


if __name__ == "__main__":
    main()
