"""Tuning beside a script: `aoe` on a directory of graphs, in a process of its own.

Not in the script's: it may be on its way out, when Python starts no thread any more, its threads
would disturb the measuring, and its Python need not have the engine.
"""

from __future__ import annotations

import math
import subprocess
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aoe.child_python import AOE, module_command, python_command
from aoe.errors import OptionError
from aoe.settings import engine_python, environment, with_bank


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderTuning:
    """Options with which a directory of graphs is tuned.

    Raises:
        OptionError: a limit that is no number of seconds, or no number of trials.
    """

    job_type: int = 2
    """AOE's number of the mode."""
    output: str | Path | None = None
    """Directory for the results; None for the workspace."""
    bank: str | Path | None = None
    """Root of the bank, made if it is missing; None for what the variables say."""
    tuning_time_limit: float | None = None
    """Seconds; None for no limit."""
    trials: int | None = None
    """Most candidates for one operator; None for the default."""
    nonhomo_split: bool = False
    """True if subgraph tuning may cut batches unevenly."""

    def __post_init__(self) -> None:
        """Refuse what the command would refuse after the script has run."""
        limits: tuple[tuple[str, int, tuple[type, ...]], ...] = (
            ("tuning_time_limit", 0, (int, float)),
            ("trials", 1, (int,)),
        )
        for name, least, kinds in limits:
            value = getattr(self, name)
            if value is None:
                continue
            is_number = isinstance(value, kinds) and not isinstance(value, bool)
            if not is_number or not least <= value < math.inf:
                raise OptionError(name, "not a limit", got=repr(value), expected=f"{least} or more")

    def arguments(self, folder: Path) -> list[str]:
        """Return the arguments of the command."""
        given = {
            "--output": self.output,
            "--tuning_time_limit": self.tuning_time_limit,
            "--trials": self.trials,
        }
        options = [f"{name}={value}" for name, value in given.items() if value is not None]
        options += ["--Fnonhomo_split"] * self.nonhomo_split
        return [f"--model_path={folder}", f"--job_type={self.job_type}", *options]

    def environment(self) -> Mapping[str, str]:
        """Return the variables of the command: the present ones, and the bank, which is made.

        Raises:
            OutputError: the bank cannot be made or used.
        """
        return environment() if self.bank is None else with_bank(environment(), Path(self.bank))

    def run(self, folder: Path, *, where: str, left: str = "") -> int:
        """Tune a directory, and return the exit code of the command; one that fails is a warning.

        Args:
            folder: What is tuned.
            where: Who asks.
            left: What there is to do then.
        """
        code = run_aoe(self.arguments(folder), self.environment(), None)
        if code:
            warnings.warn(f"{where}: tuning {folder} ended with code {code}{left}", stacklevel=2)
        return code


def run_aoe(arguments: Sequence[str], env: Mapping[str, str], cwd: Path | None) -> int:
    """Run `aoe` with arguments and variables in a directory; return its exit code.

    Under the Python `AOE_ENGINE_PYTHON` names, else under this one with what it can import now.

    Raises:
        OptionError: there is no such program.
    """
    python = engine_python(env)
    if python:
        command = module_command("aoe", *arguments, python=python)
    else:
        command = python_command(AOE, *arguments)
    try:
        return subprocess.run(command, env=dict(env), cwd=cwd, check=False).returncode
    except OSError as error:
        raise OptionError(
            "AOE_ENGINE_PYTHON",
            f"cannot be run: {error.strerror}",
            got=python,
            expected="the Python that has aoebank[engine]",
        ) from error
