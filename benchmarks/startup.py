"""Measure how long `heedful --help` takes; print the median of ten runs.

python benchmarks/startup.py
"""

import statistics
import subprocess
import sys
import time


def main():
    times = []
    for _ in range(10):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "heedful", "--help"], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - began)
    print(f"heedful --help: median {statistics.median(times):.2f} s, slowest {max(times):.2f} s")


if __name__ == "__main__":
    main()
