"""`AOE_MODE=2 python -m aoe.tensorflow SCRIPT [ARGUMENT...]`: a script as it is, tuned."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from aoe.errors import OptionError
from aoe.settings import environment
from aoe.tensorflow.watching import enable
from aoebank import AoebankError, say


def main() -> int:
    """Run the script; return the exit code if it cannot be."""
    try:
        if len(sys.argv) < 2 or not Path(sys.argv[1]).is_file():
            raise OptionError(
                "aoe.tensorflow",
                "no script",
                got=sys.argv[1] if len(sys.argv) > 1 else "nothing",
                hint="AOE_MODE=2 python -m aoe.tensorflow SCRIPT.py",
            )
        if environment().get("AOE_MODE"):
            enable()
    except AoebankError as error:
        say(f"error: {error}")
        if error.hint:
            say(f"hint: {error.hint}")
        return error.exit_code
    script = sys.argv[1]
    sys.argv[:] = sys.argv[1:]
    sys.path[0] = str(Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
