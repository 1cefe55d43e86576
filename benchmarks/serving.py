"""Throughput and latency of `heedful serve`, beside `heedful translate` and a CTranslate2 loop in Starlette.

    python benchmarks/serving.py RUN TEXT [--seconds 120] [--clients 64] [--slots 32]

RUN is a translator with an export to CTranslate2, TEXT a file with one source sentence a line. The clients are in one
process and keep their connections; each sends the next sentence when it has the answer to the last one. Everything is
on the loopback address of the same machine, so the clients' own work counts against the server.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

PEER = """
import asyncio, sys, concurrent.futures
import ctranslate2, uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from heedful.runs.run import Run
run = Run.open(sys.argv[1])
engine = ctranslate2.Translator(str(run.path / "ctranslate2"), device="cpu", inter_threads=2, intra_threads=1)
source, target = run.source_tokenizer, run.target_tokenizer
queue = asyncio.Queue()
pool = concurrent.futures.ThreadPoolExecutor(2)

def compute(batch):
    tokens = [[source.lookup(i) for i in source.encode(text)] + ["[END]"] for text, _ in batch]
    found = engine.translate_batch(tokens, beam_size=1, max_decoding_length=128, max_batch_size=64)
    return [target.decode([target.lookup(t) for t in one.hypotheses[0]]) for one in found]

async def loop():
    while True:
        batch = [await queue.get()]
        while len(batch) < 32 and not queue.empty():
            batch.append(queue.get_nowait())
        async def answer(batch):
            texts = await asyncio.get_running_loop().run_in_executor(pool, compute, batch)
            for (_, future), text in zip(batch, texts):
                if not future.cancelled():
                    future.set_result(text)
        tasks.add(task := asyncio.create_task(answer(batch)))
        task.add_done_callback(tasks.discard)
        if len(tasks) > 1:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)

tasks = set()
async def translate(request):
    given = await request.json()
    future = asyncio.get_running_loop().create_future()
    await queue.put((given["q"], future))
    return JSONResponse({"translatedText": await future})

import contextlib
@contextlib.asynccontextmanager
async def lifespan(app):
    task = asyncio.create_task(loop())
    yield
    task.cancel()

app = Starlette(routes=[Route("/translate", translate, methods=["POST"])], lifespan=lifespan)
print(f"serving on http://127.0.0.1:{sys.argv[2]}", flush=True)
uvicorn.run(app, port=int(sys.argv[2]), log_level="error", access_log=False)
"""


HEAD = "POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"


async def client(port, sentences, target, until, times, texts):
    """Send sentences until a time; record (seconds, sentence, translation)."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number, sentence in sentences:
        if time.monotonic() > until:
            break
        body = json.dumps({"q": sentence, "target": target}).encode()
        began = time.monotonic()
        writer.write(HEAD.format(len(body)).encode() + body)
        header = await reader.readuntil(b"\r\n\r\n")
        content = await reader.readexactly(int(re.search(rb"content-length: (\d+)", header, re.IGNORECASE)[1]))
        if b" 200 " not in header.split(b"\r\n")[0]:
            raise SystemExit(f"the server answered {header!r} {content!r}")
        times.append(time.monotonic() - began)
        texts.append((number, json.loads(content)["translatedText"]))
    writer.close()


async def load(port, lines, target, seconds, clients):
    """Return (seconds of each request, (line number, translation) pairs, wall seconds)."""
    sentences, times, texts = itertools.cycle(enumerate(lines)), [], []
    began = time.monotonic()
    await asyncio.gather(*(client(port, sentences, target, began + seconds, times, texts) for _ in range(clients)))
    return times, texts, time.monotonic() - began


@contextlib.contextmanager
def started(command):
    """Start a server; yield its port when it has printed its address."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    yield int(re.search(r"http://127\.0\.0\.1:(\d+)", line)[1])
    process.send_signal(signal.SIGTERM)
    process.wait()


def measured(name, port, lines, target, seconds, clients, count):
    """Load a server and print its figures; return tokens per second and the translations."""
    asyncio.run(load(port, lines, target, min(5, seconds), clients))  # warm up
    times, texts, wall = asyncio.run(load(port, lines, target, seconds, clients))
    tokens = sum(count(text) for _, text in texts)
    cuts = statistics.quantiles(times, n=100)
    print(
        f"{name:24s} {clients:3d} clients  {len(times) / wall:7.1f} sentences/s  {tokens / wall:8.0f} tokens/s  "
        f"p50 {1000 * cuts[49]:6.0f} ms  p99 {1000 * cuts[98]:6.0f} ms",
        flush=True,
    )
    return tokens / wall, texts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--target", default="en")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--slots", type=int, default=32, help="of each of the server's threads")
    parser.add_argument("--peer", action="store_true", help="also a CTranslate2 loop in Starlette")
    given = parser.parse_args()
    from heedful.data.corpus import resolve
    from heedful.data.text_files import read_lines
    from heedful.runs.run import Run

    run = Run.open(given.run)
    lines = [line for line in read_lines(resolve(given.text)) if line.strip()]

    def count(text):
        return len(run.target_tokenizer.encode(text))

    with tempfile.TemporaryDirectory() as folder:
        repeated = Path(folder) / "text"
        repeated.write_text("\n".join(lines * 8) + "\n", encoding="utf-8")
        rates, command = [], [sys.executable, "-m", "heedful", "translate", given.run]
        short = Path(folder) / "short"
        short.write_text("\n".join(lines) + "\n", encoding="utf-8")
        for _ in range(3):  # the difference of a long and a short text: without start and compilation
            spans = []
            for path in (short, repeated):
                began = time.monotonic()
                out = subprocess.run([*command, path], capture_output=True, text=True, check=True).stdout
                spans.append(time.monotonic() - began)
            written = out.split("\n")[: len(lines)]
            rates.append(7 * sum(map(count, written)) / (spans[1] - spans[0]))
        rate = statistics.median(rates)
        all_rates = ", ".join(f"{one:,.0f}" for one in sorted(rates))
        print(f"heedful translate: {rate:,.0f} tokens/s (median of {all_rates})", flush=True)
        serve = [sys.executable, "-m", "heedful", "serve", str(given.run), "--port", "0", "--slots", str(given.slots)]
        with started(serve) as port:
            own, texts = measured("heedful serve", port, lines, given.target, given.seconds, given.clients, count)
            same = sum(text == written[number] for number, text in texts)
            print(
                f"heedful serve: {own / rate:.2f} of heedful translate; {same} of {len(texts)} translations are equal"
            )
            measured("heedful serve", port, lines, given.target, min(20, given.seconds), 1, count)
        if (given.run / "ctranslate2").is_dir():
            name = "heedful serve --engine ctranslate2"
            with started([*serve, "--engine", "ctranslate2"]) as port:
                for seconds, clients in ((given.seconds, given.clients), (min(20, given.seconds), 1)):
                    measured(name, port, lines, given.target, seconds, clients, count)
        if given.peer:
            with started([sys.executable, "-c", textwrap.dedent(PEER), str(given.run), "8799"]) as port:
                time.sleep(1)
                measured("CTranslate2 + Starlette", port, lines, given.target, given.seconds, given.clients, count)
                measured("CTranslate2 + Starlette", port, lines, given.target, min(20, given.seconds), 1, count)


if __name__ == "__main__":
    main()
