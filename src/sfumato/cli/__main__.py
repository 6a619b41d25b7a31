"""Run the command line as a module: ``python -m sfumato.cli``."""

import sys

from sfumato.cli import main

if __name__ == "__main__":
    sys.exit(main())
