"""Thousands of bad requests to `heedful serve`: no server error, no hang, flat memory.

    python benchmarks/serve_abuse.py RUN [--requests 10000]

Random fields and types, broken and huge bodies, odd Unicode, slow bodies, disconnects in the middle of requests and of
streams, tricks with paths, foreign Host headers. In between, a plain request must be answered.
"""

import argparse
import asyncio
import json
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

PATHS = (
    *"/translate /v2/translate /v1/completions /v1/chat/completions /v1/embeddings /languages /v1/models".split(),
    *"/metrics /livez /v1/models/..%2f..%2fetc%2fpasswd /../../etc/passwd /%00".split(), "/" + "a" * 5000,
    *"/page/NAME /api/runs/NAME/look /api/runs/NAME/score /api/runs/NAME/write /api/runs/NAME/nearest".split(),
)  # fmt: skip
NAMES = (
    "q source target text target_lang source_lang model prompt messages input stream n max_tokens temperature top_p "
    "seed stop alternatives format encoding_format taget off checkpoint width prefix tokens variants"
).split()
JSON = "application/json"
TYPES = (JSON,) * 8 + ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data", "", "\x01")
HOSTS = ("127.0.0.1",) * 12 + ("evil.example", "", "127.0.0.1.evil.example", "[::1", "localhost:99999999")
METHODS = ("POST",) * 9 + ("GET", "PUT", "OPTIONS", "BREW")
HEAD = "{} {} HTTP/1.1\r\nHost: {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n"


def value(draw, name):
    """Return a value for a field."""
    role, content = draw.choice(("user", "system", "", 3)), draw.choice(("ein Hund", None, [], [{"type": "text"}]))
    texts = ("ein Hund", "", "\x00", "\u202e", "😀" * draw.randint(1, 2000), "\ud800", "a\nb\n" * draw.randint(1, 300))
    ids = (
        [5, 6, 7],
        [10**9],
        [-1],
        {"cross": {"0": {"0": True}}},
        [{"source": [5], "target": [6]}] * draw.randint(1, 99),
    )
    others = (
        *ids,
        name,
        name[::-1],
        "en",
        "de",
        "auto",
        0,
        1,
        -1,
        10**30,
        1e308,
        True,
        None,
        [],
        {},
        [[]],
        {"a": {"b": {}}},
    )
    return draw.choice((*texts, *others, ["x"] * draw.randint(0, 300), [{"role": role, "content": content}]))


def body(draw, name):
    """Return the bytes of a body."""
    fields = {draw.choice(NAMES): value(draw, name) for _ in range(draw.randint(0, 6))}
    if draw.random() < 0.6:
        fields |= {"model": name, "prompt": "ein Hund", "q": "ein Hund", "target": "en", "target_lang": "EN"}
        for _ in range(draw.randint(0, 5)):
            fields.pop(draw.choice(list(fields)), None)
    elif draw.random() < 0.2:  # a question of a page that makes sense
        fields = draw.choice(
            (
                {"source": [5, 6], "target": [7]},
                {"source": [5, 6]},
                {"text": "ein Hund"},
                {"variants": [{"source": [5], "target": [6]}]},
                {"source": [5, 6], "width": 4},
            )
        )
    content = json.dumps(fields).encode()
    kind = draw.random()
    if kind < 0.06:
        return content[: draw.randint(0, len(content))]
    if kind < 0.1:
        return draw.randbytes(draw.randint(0, 3000))
    if kind < 0.11:
        return b"x" * draw.randint(1 << 20, 1 << 21)
    if kind < 0.12:
        return b"[" * 100_000
    return content


async def one(draw, port, name, statuses):
    """Send a request; maybe slowly, maybe leave in the middle."""
    content = body(draw, name)
    length = len(content) if draw.random() < 0.95 else draw.choice((0, len(content) + 5, 10**12, -1))
    method, path, host, kind = map(draw.choice, (METHODS, PATHS, HOSTS, TYPES))
    head = HEAD.format(method, path.replace("NAME", name), host, kind, length)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head.encode("latin-1", "replace"))
        leave = draw.random()
        if leave < 0.05:
            return
        writer.write(content[: len(content) // 2])
        if leave < 0.1:
            await asyncio.sleep(0.01)
            return
        if leave < 0.12:
            await asyncio.sleep(0.2)
        writer.write(content[len(content) // 2 :])
        if leave < 0.15:
            return
        async with asyncio.timeout(20):
            first = await reader.readline()
            if leave < 0.2:
                return  # in the middle of the answer, or of a stream
            await reader.read()
        if found := re.match(rb"HTTP/1.1 (\d+)", first):
            statuses[int(found[1])] += 1
            if int(found[1]) >= 500:
                statuses["server errors"] += 1
                print(f"{found[1]} for {head!r} {content[:300]!r}", flush=True)
    except (ConnectionError, BrokenPipeError):
        statuses["closed"] += 1
    except TimeoutError:
        if length > len(content):
            statuses["waits for its body"] += 1
        else:
            raise SystemExit(f"no answer within 20 s to {head!r} {content[:300]!r}") from None
    finally:
        writer.close()


def resident(process):
    """Return the memory of a process in MiB."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1]) / 1024


async def abuse(process, port, name, requests):
    statuses, draw = Counter(), random.Random(1)
    began = time.monotonic()
    for number in range(0, requests, 20):
        await asyncio.gather(*(one(draw, port, name, statuses) for _ in range(20)))
        if number % 1000 == 0:
            print(f"{number:6d} requests, {resident(process):,.0f} MiB, {dict(statuses)}", flush=True)
    print(f"{requests} requests in {time.monotonic() - began:.0f} s, {resident(process):,.0f} MiB, {dict(statuses)}")
    print(f"{statuses['server errors']} server errors")
    plain = json.dumps({"q": "ein Hund", "target": "en"}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = HEAD.format("POST", "/translate", "127.0.0.1", JSON, len(plain))
    writer.write(head.encode() + plain)
    print((await reader.read()).split(b"\r\n\r\n")[-1].decode())
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--requests", type=int, default=10_000)
    given = parser.parse_args()
    command = [sys.executable, "-m", "heedful", "serve", str(given.run), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    port = int(re.search(r":(\d+)$", process.stdout.readline().strip())[1])
    asyncio.run(abuse(process, port, given.run.resolve().name, given.requests))
    process.send_signal(signal.SIGTERM)
    print(process.communicate()[0].strip(), "exit code", process.returncode)


if __name__ == "__main__":
    main()
