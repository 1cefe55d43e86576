"""`heedful bench decode` as a script: decoding speed beside CTranslate2; the same options."""

import sys

from heedful.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "decode", *sys.argv[1:]]))
