"""Train in one process and in several, alternating, on this machine: target tokens a second, and CPU time.

    python benchmarks/processes.py [--processes 2] [--rounds 3] [--updates 40] [--batch-tokens 4096]

Both compute the same updates of `multi30k-de-en`. One process uses all cores; of several, each has its share of them.
CPU/wall is the CPU time over the wall time of the whole command, compilation included. The medians are printed last.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def measure(folder, processes, options, precision):
    """Train once; return target tokens a second without compilation, and CPU time over wall time."""
    command = [
        sys.executable, "-m", "heedful", "train", "multi30k-de-en", "--run", folder / "run", "--force",
        "--train.minutes", 0, "--train.updates", options.updates, "--train.validate_every", options.updates,
        "--train.validate_sentences", 0, "--train.average", 0, "--train.check", "false", "--train.examine", "false",
        "--train.tensorboard", "false", "--train.precision", precision, "--data.batch_tokens", options.batch_tokens,
        *(["--processes", processes] if processes > 1 else []),
    ]  # fmt: skip
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    [entry] = [json.loads(line) for line in (folder / "run" / "log.jsonl").read_text().splitlines()]
    return entry["tokens_per_second"], cpu / wall


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    options = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        for number in range(options.rounds):
            for precision in ("float32", "bfloat16"):
                for processes in (1, options.processes):
                    rate, cores = measure(Path(temporary), processes, options, precision)
                    results.setdefault((precision, processes), []).append(rate)
                    print(
                        f"round {number + 1}  {precision:8s} {processes} processes: {rate:8,.0f} tokens/s, CPU/wall "
                        f"{cores:.2f}",
                        flush=True,
                    )
    for precision in ("float32", "bfloat16"):
        one, several = (results[precision, processes] for processes in (1, options.processes))
        ratio = statistics.median(b / a for a, b in zip(one, several, strict=True))
        print(
            f"{precision}: {statistics.median(one):,.0f} and {statistics.median(several):,.0f} target tokens/s, "
            f"{options.processes} processes {ratio:.3f} times as fast as one"
        )


if __name__ == "__main__":
    main()
