"""Run `heedful bench decode`, which compares decoding speed with CTranslate2; takes the same options."""

import sys

from heedful.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "decode", *sys.argv[1:]]))
