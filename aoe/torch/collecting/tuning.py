"""Tuning of a dump by the script that has made it: `aoe`, in a process of its own.

Not in the script's: it may be on its way out, when Python starts no thread any more, and its
threads would disturb the measuring.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aoe.errors import OptionError
from aoe.settings import environment, with_bank

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from aoe.cli.app import main; main()"
)

RunAoe = Callable[[Sequence[str], Mapping[str, str]], int]
"""Runs the command with arguments and variables; returns its exit code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpTuning:
    """How a dump is tuned when it is done.

    Attributes:
        output: Directory for the results; None for the workspace.
        bank: Root of the bank, made if it is missing; None for what the variables say.
        tuning_time_limit: Seconds; None for no limit.
        trials: Most candidates for one operator; None for the default.

    Raises:
        OptionError: a limit that is no number of seconds, or no number of trials.
    """

    output: str | Path | None = None
    bank: str | Path | None = None
    tuning_time_limit: float | None = None
    trials: int | None = None

    def __post_init__(self) -> None:
        """Refuse what the command would refuse after the script has run."""
        for name, least in (("tuning_time_limit", 0), ("trials", 1)):
            value = getattr(self, name)
            if value is None:
                continue
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not value >= least:
                raise OptionError(
                    f"set_aoe, {name}", "not a limit", got=repr(value), expected=f"{least} or more"
                )

    def arguments(self, dump: Path) -> list[str]:
        """Return those of the command."""
        given = {
            "--output": self.output,
            "--tuning_time_limit": self.tuning_time_limit,
            "--trials": self.trials,
        }
        options = [f"{name}={value}" for name, value in given.items() if value is not None]
        return [f"--model_path={dump}", "--job_type=2", *options]

    def environment(self) -> Mapping[str, str]:
        """Return the variables of the command, those of now with the bank, which is made.

        Raises:
            OutputError: the bank cannot be made or used.
        """
        return environment() if self.bank is None else with_bank(environment(), Path(self.bank))

    def run(self, dump: Path) -> int:
        """Tune a dump, and return the exit code of the command; one that fails is a warning."""
        code = run_aoe(self.arguments(dump), self.environment())
        if code:
            text = f"set_aoe: tuning {dump} ended with code {code}; the dump is there: "
            warnings.warn(f"{text}aoe --model_path={dump}", stacklevel=2)
        return code


def run_aoe(arguments: Sequence[str], env: Mapping[str, str]) -> int:
    """Run `aoe` under this Python, with what this process can import; see `RunAoe`."""
    command = [sys.executable, "-c", _BOOT, json.dumps(sys.path), *arguments]
    return subprocess.run(command, env=dict(env), check=False).returncode
