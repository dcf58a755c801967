"""`python -m aoe.torch SCRIPT ...`: a training script as it is, tuned as `AOE_MODE` says.

2 tunes the operators of the forward and backward pass in this process, 4 the grouping of gradients
in the group `torchrun` makes, 2,4 both in one run.
"""

from __future__ import annotations

import runpy
import sys
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from pathlib import Path

from aoe.errors import EngineNotInstalledError, OptionError
from aoe.settings import environment
from aoe.torch.script_mode import GRADIENTS, VARIABLE, asked_modes, become_aoe, check_modes
from aoebank import AoebankError, say


def main() -> int:
    """Run the script, or become `aoe --script`; return the exit code if it cannot be."""
    env = environment()
    modes = asked_modes(env)
    try:
        check_modes(modes, VARIABLE)
        _check(sys.argv[1:])
        if GRADIENTS in modes:
            become_aoe(sys.argv[1:], env)
        tuning = _tuning(sys.argv[1]) if modes else nullcontext()
    except AoebankError as error:
        say(f"error: {error}")
        if error.hint:
            say(f"hint: {error.hint}")
        return error.exit_code
    sys.argv[:] = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    with tuning:
        runpy.run_path(sys.argv[0], run_name="__main__")
    return 0


def _tuning(script: str) -> AbstractContextManager[object]:
    """Return the watcher that tunes the training of a script while it runs."""
    if find_spec("torch") is None:
        raise EngineNotInstalledError(
            "aoe.torch",
            "PyTorch is not installed",
            hint="python -m pip install 'aoebank[torch]'",
        )
    from aoe.bank.operators import bank_root
    from aoe.torch.scripts.running import TunedScript

    env, cwd = environment(), Path.cwd()
    bank_root(env, cwd)  # one that cannot be used is found out before the script runs
    tuning = TunedScript(script, {}, env=env, cwd=cwd)
    if env.get("RANK", "0") == "0":
        say(f"aoe: operator tuning of this training, in {cwd}")
    return tuning


def _check(arguments: list[str]) -> None:
    if not arguments or not Path(arguments[0]).is_file():
        raise OptionError(
            "aoe.torch",
            "no script",
            got=arguments[0] if arguments else "nothing",
            hint="AOE_MODE=2 python -m aoe.torch SCRIPT.py",
        )


if __name__ == "__main__":
    sys.exit(main())
