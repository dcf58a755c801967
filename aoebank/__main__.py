"""The command `aoebank`, also called `python -m aoebank`."""

import sys


def main() -> int:
    """Run the command of this process and return its exit code."""
    try:
        from aoebank.cli import main as run
    except KeyboardInterrupt:  # Ctrl-C while the command line is loaded
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
