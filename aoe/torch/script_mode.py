"""`AOE_MODE=4`, or `2,4`: a training script becomes `aoe --job_type=4 --script` of itself.

By `python -m aoe.torch SCRIPT`, or by `import aoe.torch` at the top of a script `torchrun` has
started. Needs no PyTorch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from aoe.child_python import AOE, python_command
from aoe.errors import OptionError
from aoe.settings import environment
from aoe.torch.scripts.remembering import remember_for_script
from aoe.tuner.mode import JobType

VARIABLE = "AOE_MODE"
OPERATORS, GRADIENTS = str(JobType.OPAT.number), str(JobType.GDAT.number)
_RANK = "RANK"
"""Set in a process of a group. Source: `torchrun`."""


def asked_modes(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the numbers of the modes `AOE_MODE` asks for, in its order; none where it is empty."""
    return tuple(filter(None, env.get(VARIABLE, "").replace(" ", "").split(",")))


def check_modes(modes: Collection[str], where: str) -> None:
    """Refuse what cannot be tuned in a training script.

    Args:
        modes: Numbers of the modes that are asked for.
        where: Option or variable that asks.

    Raises:
        OptionError: there is more than operators and gradients.
    """
    if not {OPERATORS, GRADIENTS}.issuperset(modes):
        raise OptionError(
            where,
            "a training has operators and gradients to tune, and no subgraphs of its own",
            got=",".join(modes),
            expected=f"{OPERATORS}, {GRADIENTS} or {OPERATORS},{GRADIENTS}",
            hint="for subgraphs of its model: aoe --job_type=1 --model_path=DUMP, see set_aoe",
        )


def become_aoe(script: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    """Replace this process by `aoe`, which runs a script and tunes it on the way.

    Args:
        script: The script and its arguments.
        env: Environment variables; `AOE_MODE` says what is tuned.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    modes = ",".join(asked_modes(env))
    command = python_command(AOE, f"--job_type={modes}", "--script", *script)
    left = {name: value for name, value in env.items() if name != VARIABLE}
    os.execve(command[0], command, left)


def begin_in_script() -> None:
    """Become `aoe` where a script asks for it, else remember its first step for `set_aoe`."""
    tune_where_asked()
    remember_for_script()


def tune_where_asked() -> None:
    """Become `aoe` if this is a script of a group and `AOE_MODE` asks for its gradients.

    Raises:
        OptionError: the script has begun too much to begin anew.
    """
    env, main = environment(), sys.modules.get("__main__")
    if GRADIENTS not in asked_modes(env) or _RANK not in env or not _is_script(main):
        return
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        raise OptionError(
            VARIABLE,
            "the process group was made before aoe.torch was imported",
            got=env[VARIABLE],
            hint="import aoe.torch at the top of the script: it runs from there on under aoe",
        )
    become_aoe(sys.argv, env)


def _is_script(main: ModuleType | None) -> bool:
    """True if Python was given a file, and not `-m`, `-c` or nothing."""
    file = getattr(main, "__file__", None)
    if file is None or getattr(main, "__spec__", None) is not None or not sys.argv[0]:
        return False
    return Path(file).absolute() == Path(sys.argv[0]).absolute()
