"""`python -m heedful`: the command line where the script `heedful` is not on the path."""

import sys

from heedful.cli import main

if __name__ == "__main__":
    sys.exit(main())
