"""`AOE_MODE=4`: a training script becomes `aoe --job_type=4 --script` of itself.

By `python -m aoe.torch SCRIPT`, or by `import aoe.torch` at the top of a script `torchrun` has
started. Needs no PyTorch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
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


def become_aoe(script: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    """Replace this process by `aoe`, which runs a script and tunes its gradients on the way.

    Args:
        script: The script and its arguments.
        env: Environment variables.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    command = python_command(AOE, f"--job_type={GRADIENTS}", "--script", *script)
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
    if env.get(VARIABLE) != GRADIENTS or _RANK not in env or not _is_script(main):
        return
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        raise OptionError(
            VARIABLE,
            "the process group was made before aoe.torch was imported",
            got=GRADIENTS,
            hint="import aoe.torch at the top of the script: it runs from there on under aoe",
        )
    become_aoe(sys.argv, env)


def _is_script(main: ModuleType | None) -> bool:
    """True if Python was given a file, and not `-m`, `-c` or nothing."""
    file = getattr(main, "__file__", None)
    if file is None or getattr(main, "__spec__", None) is not None or not sys.argv[0]:
        return False
    return Path(file).absolute() == Path(sys.argv[0]).absolute()
