"""Run `heedful bench train`, which compares training speed with other libraries; takes the same options."""

import sys

from heedful.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "train", *sys.argv[1:]]))
