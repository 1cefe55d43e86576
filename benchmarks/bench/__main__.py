"""Compare heedful with other toolkits on the same work, alternating: in the folder of the project,

python -m benchmarks.bench train|classify|decode [--help]
"""

import argparse
import importlib
import sys

from heedful.config import settings
from heedful.core.errors import InputError
from heedful.core.memory import keep_freed_memory

BENCHMARKS = {
    "train": ("training", "compare training speed and memory with other toolkits"),
    "classify": ("classification", "compare classifiers with a linear support vector machine"),
    "decode": ("decoding", "compare decoding speed with CTranslate2"),
}


def main(arguments: list[str]) -> int:
    """Run a benchmark; return the exit code, 2 for a user error."""
    name, *rest = arguments or [""]
    if name not in BENCHMARKS:
        for known, (_, text) in BENCHMARKS.items():
            print(f"{known:10s}{text}", file=sys.stderr)
        return 2
    module_name, text = BENCHMARKS[name]
    module = importlib.import_module(f"benchmarks.bench.{module_name}")
    rest, overrides = settings.split_arguments(rest) if getattr(module, "TAKES_SETTINGS", False) else (rest, [])
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.bench {name}", description=text)
    module.add_arguments(parser)
    options = parser.parse_args(rest)
    options.overrides = overrides
    keep_freed_memory()
    try:
        module.run(options)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
