"""Fuzz every command: arbitrary bytes as text, broken recipes, settings, run folders and arguments.

    python benchmarks/fuzzing.py [--inputs 10000] [--seed 1]

Hypothesis draws the inputs that `tests/test_fuzz.py` defines, the same ones for the same seed, and shrinks those that
fail. The last line counts the inputs, those that were refused, and the properties that failed: by a traceback, a hang
of two minutes, an unknown exit code, or a changed file of the user.
"""

import argparse
import os
import sys
from pathlib import Path


class Failures:
    """Counts the properties that do not hold."""

    def __init__(self):
        self.count = 0

    def pytest_runtest_logreport(self, report):
        """Count a failure."""
        self.count += report.failed


def main():
    """Run the fuzz tests and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    os.environ["FUZZ_INPUTS"], os.environ["FUZZ_SEED"] = str(options.inputs), str(options.seed)
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    root = Path(__file__).parent.parent
    sys.path.insert(0, str(root))
    import pytest

    failures = Failures()
    pytest.main([str(root / "tests" / "test_fuzz.py"), "-q", "-p", "no:cacheprovider"], plugins=[failures])
    codes = (0, 1, 2)
    counts = sys.modules["tests.test_fuzz"].COUNTS
    print(", ".join(f"{command} {count:,}" for command, count in counts.items() if command not in codes))
    total = sum(counts[code] for code in codes)
    print(f"{total:,} inputs, {counts[2]:,} of them refused in a line or two; {failures.count} properties failed")
    return failures.count


if __name__ == "__main__":
    sys.exit(main())
