"""`AOE_MODE=4 torchrun -m aoe.torch SCRIPT ...`: a script as it is, its gradients tuned."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from aoe.errors import OptionError
from aoe.settings import environment
from aoe.torch.script_mode import GRADIENTS, VARIABLE, become_aoe
from aoebank import AoebankError, say


def main() -> int:
    """Run the script, or become `aoe --script`; return the exit code if it cannot be."""
    env = environment()
    mode = env.get(VARIABLE, "")
    try:
        _check(sys.argv[1:], mode)
    except AoebankError as error:
        say(f"error: {error}")
        if error.hint:
            say(f"hint: {error.hint}")
        return error.exit_code
    if mode:
        become_aoe(sys.argv[1:], env)
    sys.argv[:] = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
    return 0


def _check(arguments: list[str], mode: str) -> None:
    if mode not in ("", GRADIENTS):
        raise OptionError(
            VARIABLE,
            "only gradients are tuned in a PyTorch script as it is",
            got=mode,
            expected=GRADIENTS,
            hint="operators and subgraphs: aoe.torch.optimize, or aoe.torch.set_aoe in the script",
        )
    if not arguments or not Path(arguments[0]).is_file():
        raise OptionError(
            "aoe.torch",
            "no script",
            got=arguments[0] if arguments else "nothing",
            hint="AOE_MODE=4 torchrun --nproc-per-node=2 -m aoe.torch SCRIPT.py",
        )


if __name__ == "__main__":
    sys.exit(main())
