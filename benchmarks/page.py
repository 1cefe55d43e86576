"""Size, speed and exactness of a page in Chromium.

    python benchmarks/page.py RUN TEXT [--sentences 200]

RUN is a translator, TEXT a file with one source sentence a line. For each type of weights: size of the file, time until
the page has answered its first example, tokens per second of greedy search with WASM SIMD and in JavaScript, and
the share of sentences whose greedy translation and best hypothesis of a beam of 4 are those of heedful.
"""

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

import heedful
from heedful.data.corpus import resolve
from heedful.data.text_files import read_lines
from heedful.inspection.page.writing import write_page
from heedful.runs.run import Run

TRANSLATE = """async ([texts, width]) => {
  const { model } = window.heedful, out = [], began = performance.now();
  let tokens = 0;
  for (const text of texts) {
    const { ids } = await model.split({ text });
    let last;
    for await (last of model.write({ source: ids, width })) if (!last.done) tokens++;
    out.push((Array.isArray(last.done) ? last.done[0] : last.done).text);
  }
  return { out, rate: tokens / (performance.now() - began) * 1000, kernel: (await model.about()).kernel };
}"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--sentences", type=int, default=200)
    given = parser.parse_args()
    lines = [line for line in read_lines(resolve(given.text)) if line.strip()][: given.sentences]
    run, translator = Run.open(given.run), heedful.load(given.run)
    want = {1: translator.translate(lines, beam_size=1), 4: translator.translate(lines, beam_size=4)}
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        print(f"{run.path}: {translator.model.count_params():,} parameters, {len(lines)} sentences, {browser.version}")
        for kind in ("float32", "float16", "int8"):
            path = Path(folder) / f"{kind}.html"
            began = time.monotonic()
            write_page([run], path, kind, [lines[0]], checkpoints=0)
            print(
                f"{kind}: {path.stat().st_size / 1e6:.1f} MB, written in {time.monotonic() - began:.1f} s", flush=True
            )
            for fragment in ("", "#nosimd"):
                if fragment and kind != "float16":
                    continue
                page = browser.new_context(offline=True).new_page()
                began = time.monotonic()
                page.goto(path.as_uri() + fragment)
                page.locator(".target .word").first.wait_for()
                shown = time.monotonic() - began
                page.evaluate(TRANSLATE, [lines[:3], 1])
                greedy = page.evaluate(TRANSLATE, [lines, 1])
                line = f"  {greedy['kernel']}: shown after {shown:.2f} s, greedy {greedy['rate']:,.0f} tokens/s"
                same = sum(a == b for a, b in zip(greedy["out"], want[1], strict=True))
                line += f", {same} of {len(lines)} equal"
                if not fragment:
                    written = page.evaluate(TRANSLATE, [lines, 4])["out"]
                    line += f"; beam of 4: {sum(a == b for a, b in zip(written, want[4], strict=True))} equal"
                print(line, flush=True)
                page.context.close()
        browser.close()


if __name__ == "__main__":
    main()
