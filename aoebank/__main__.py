"""`python -m aoebank`: the same as the command `aoebank`."""

import sys

from aoebank.cli import main

if __name__ == "__main__":
    sys.exit(main())
