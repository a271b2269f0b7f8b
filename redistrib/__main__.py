"""`python -m redistrib` is the command `redistrib`."""

import sys

from redistrib.cli import main

if __name__ == "__main__":
    sys.exit(main())
