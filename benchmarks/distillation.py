"""BLEU and speed of teachers and students in each engine, interleaved.

    python -m benchmarks.distillation RUN [RUN ...] --files test.de test.en [--only CTranslate2]

Each run translates the lines with a greedy search, in heedful and CTranslate2 also with a beam of 5. The speed is that
of the output, in tokens of the vocabulary of each run and in lines, the median of the repeats; the first pass compiles
and is not timed. ONNX is run by onnxruntime, the page by Chromium if that is installed.
"""

import argparse
import contextlib
import dataclasses
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.page import TRANSLATE
from heedful.data.corpus import Corpus
from heedful.inference.translator import Translator
from heedful.inspection.page.writing import write_page
from heedful.interop.export import ctranslate2, onnx
from heedful.interop.export.ctranslate2_search import SHORTLIST, ctranslate2_translator
from heedful.interop.export.plain_search import plain_search
from heedful.interop.export.shortlist import learn_shortlist, parallel_text
from heedful.runs.run import Run
from heedful.tasks.translation_scores import bleu_tokenizer_of
from heedful.training.evaluation import score_text

QUANTIZATIONS = ("float32", "int8")
PAGE_WEIGHTS = "float16"


@dataclasses.dataclass
class Engine:
    """A run in an engine: how it translates lines, and the size on disk of what it loads (of a page: all of it)."""

    run: Run
    name: str
    beam: int
    translate: object
    bytes: int


def engines_of(run, folder, browser):
    """Yield the engines of a run."""
    size = run.weights_path().stat().st_size
    for precision in ("float32", "bfloat16", "int8"):
        search = dataclasses.replace(plain_search(run), precision=precision)
        yield Engine(run, f"heedful {precision}", 1, Translator.from_run(run, search).translate, size)
    yield Engine(run, "heedful float32", 5, Translator.from_run(run, plain_search(run, 5)).translate, size)
    for quantization, shortlist in (("float32", False), ("int8", False), ("int8", True)):
        exported = ctranslate2.export(run, folder / f"{quantization}-{shortlist}", quantization)
        size = (exported / "model.bin").stat().st_size
        if shortlist:
            ctranslate2.add_shortlist(run, exported, learn_shortlist(run, parallel_text(run), print))
            size += (exported / SHORTLIST).stat().st_size
        for beam in (1, 5):
            translator = ctranslate2_translator(run, plain_search(run, beam), exported)
            name = f"CTranslate2 {quantization}{', shortlist' if shortlist else ''}"
            yield Engine(run, name, beam, translator.translate, size)
    for quantization in QUANTIZATIONS:
        onnx.FORMAT.write(run, folder, quantization)
        engine = onnx.FORMAT.open(run, folder, quantization)
        yield Engine(run, f"ONNX {quantization}", 1, onnx_translation(engine, run.config.model.max_length), engine.size)
    if browser:
        path = folder / "page.html"
        write_page([run], path, PAGE_WEIGHTS, checkpoints=0)
        page = browser.new_page()
        page.goto(path.as_uri())
        page.locator(".target .word").first.wait_for()
        yield Engine(run, f"page {PAGE_WEIGHTS}", 1, page_translation(page), path.stat().st_size)


def onnx_translation(engine, max_length):
    """Return a function that translates lines with an opened ONNX export."""
    return lambda lines: [text for text, _ in engine.write(lines, max_length, 1)]


def page_translation(page):
    """Return a function that translates lines in an open page."""
    return lambda lines: page.evaluate(TRANSLATE, [lines, 1])["out"]


@contextlib.contextmanager
def chromium():
    """Yield Chromium, or None if it is not installed."""
    path = shutil.which("chromium")
    if not path:
        yield None
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        yield playwright.chromium.launch(executable_path=path, args=arguments)


def main():
    """Print a line for each run and engine."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--files", nargs=2, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument(
        "--only", default="", metavar="ENGINE", help="engines whose names begin so, such as CTranslate2"
    )
    options = parser.parse_args()
    pairs = list(Corpus.from_files(options.files))[: options.lines]
    sources, references = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        engines = [
            engine
            for number, path in enumerate(options.runs)
            for engine in engines_of(Run.open(path), Path(folder) / str(number), browser)
            if engine.name.startswith(options.only)
        ]
        translated = [engine.translate(sources) for engine in engines]
        seconds = [[] for _ in engines]
        for _ in range(options.repeats):
            for times, engine in zip(seconds, engines, strict=True):
                began = time.perf_counter()
                engine.translate(sources)
                times.append(time.perf_counter() - began)
    for engine, texts, times in zip(engines, translated, seconds, strict=True):
        run, median = engine.run, statistics.median(times)
        tokenize = bleu_tokenizer_of(run.config, references)
        bleu = score_text(texts, references, run.target_tokenizer.lowercase, tokenize=tokenize)["bleu"]
        tokens = sum(map(len, run.target_tokenizer.encode_batch(texts)))
        print(
            f"{run.path}\t{engine.name}\tbeam {engine.beam}\t{engine.bytes / 1e6:.2f} MB\tBLEU {bleu:.2f}"
            f"\t{tokens / median:,.0f} tokens/s\t{len(sources) / median:,.1f} lines/s",
            flush=True,
        )


if __name__ == "__main__":
    main()
