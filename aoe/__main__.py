"""`python -m aoe`, and `torchrun -m aoe`: the same as the command `aoe`."""

from aoe.cli.app import main

if __name__ == "__main__":
    main()
