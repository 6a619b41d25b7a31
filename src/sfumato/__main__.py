"""`python -m sfumato`: the command line."""

import sys

from sfumato.cli import main

if __name__ == "__main__":
    sys.exit(main())
