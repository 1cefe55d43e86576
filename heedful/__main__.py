"""`python -m heedful`: run the command line when the `heedful` script is not on PATH."""

import sys

from heedful.cli import main

if __name__ == "__main__":
    sys.exit(main())
