"""`heedful bench train` as a script: training speed beside its peers; the same options."""

import sys

from heedful.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "train", *sys.argv[1:]]))
