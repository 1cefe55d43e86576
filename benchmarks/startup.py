"""Measure how long `heedful --help` takes, and a line that is translated by a command; print the median of ten runs.

python benchmarks/startup.py [RUN]

RUN is a translator; with an export to CTranslate2, that engine is measured too. All compiled programs are kept from an
untimed call.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

REPEATS = 10
LINE = b"O gato preto bebe leite.\n"


def main():
    """Print a line for each command."""
    commands = [["--help"]]
    if sys.argv[1:]:
        commands.append(["translate", sys.argv[1]])
        if (Path(sys.argv[1]) / "ctranslate2").is_dir():
            commands.append([*commands[-1], "--engine", "ctranslate2"])
    times = [[] for _ in commands]
    for number in range(REPEATS + 1):
        for seconds, command in zip(times, commands, strict=True):
            began = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "heedful", *command], check=True, input=LINE, stdout=subprocess.DEVNULL
            )
            if number:
                seconds.append(time.perf_counter() - began)
    for seconds, command in zip(times, commands, strict=True):
        print(f"heedful {' '.join(command)}: median {statistics.median(seconds):.2f} s, slowest {max(seconds):.2f} s")


if __name__ == "__main__":
    main()
