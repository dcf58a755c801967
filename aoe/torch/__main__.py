"""`python -m aoe.torch [OPTIONS] SCRIPT ...`: a training script as it is, tuned by `AOE_MODE`.

2 tunes the operators of the forward and backward pass in this process, 4 the grouping of gradients
in the group `torchrun` makes; each has a run of its own.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from pathlib import Path

from aoe.errors import EngineNotInstalledError, OptionError
from aoe.settings import environment
from aoe.torch.script_mode import GRADIENTS, OPERATORS, VARIABLE, become_aoe
from aoebank import AoebankError, say

_OPTIONS = ("base_result", "output")
"""What may be said before the script, as `aoe` takes it."""


def main() -> int:
    """Run the script, or become `aoe --script`; return the exit code if it cannot be."""
    env = environment()
    mode = env.get(VARIABLE, "").replace(" ", "")
    try:
        options = _take_options(mode)
        _check(sys.argv[1:], mode)
        if mode == GRADIENTS:
            become_aoe(sys.argv[1:], env)
        tuning = _tuning(sys.argv[1], options) if mode == OPERATORS else nullcontext()
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


def _take_options(mode: str) -> Mapping[str, Path]:
    """Take the options before the script out of the command line; return them by their names.

    Raises:
        OptionError: an option nobody knows, or one without operators to tune.
    """
    found = {}
    while len(sys.argv) > 1 and sys.argv[1].startswith("--"):
        name, _, value = sys.argv.pop(1).removeprefix("--").partition("=")
        if name not in _OPTIONS or not value or mode != OPERATORS:
            raise OptionError(
                f"--{name}",
                "no option before a training script",
                got=value or "nothing",
                expected=" or ".join(f"--{one}=DIR" for one in _OPTIONS),
                hint=f"{VARIABLE}={OPERATORS} python -m aoe.torch --base_result=DIR SCRIPT.py",
            )
        found[name] = Path(value)
    return found


def _tuning(script: str, options: Mapping[str, Path]) -> AbstractContextManager[object]:
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
    output, base_result = options.get("output"), options.get("base_result")
    tuning = TunedScript(script, {}, output=output, base_result=base_result, env=env, cwd=cwd)
    if env.get("RANK", "0") == "0":
        say(f"aoe: operator tuning of this training, in {cwd}")
    return tuning


def _check(arguments: list[str], mode: str) -> None:
    if mode not in ("", OPERATORS, GRADIENTS):
        raise OptionError(
            VARIABLE,
            "a training has operators and gradients to tune, and no subgraphs of its own",
            got=mode,
            expected=f"{OPERATORS} or {GRADIENTS}",
            hint="one run for each mode; subgraphs: aoe --job_type=1 --model_path=DUMP",
        )
    if not arguments or not Path(arguments[0]).is_file():
        raise OptionError(
            "aoe.torch",
            "no script",
            got=arguments[0] if arguments else "nothing",
            hint="AOE_MODE=2 python -m aoe.torch SCRIPT.py",
        )


if __name__ == "__main__":
    sys.exit(main())
