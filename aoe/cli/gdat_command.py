"""`aoe --job_type=4 --script TRAIN.py [arguments]`: tune the gradients of a training script."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from aoe.cli.options import finish
from aoe.cli.progress import LineProgress, QuietProgress
from aoe.errors import EngineNotInstalledError, OptionError
from aoe.settings import environment
from aoe.tuning.mode import JobType, TuneSettings

if TYPE_CHECKING:
    from aoe.tuning.configuration.resolving import RunConfiguration

_OPTION = "--script"
_PASSED = "--script_argument"


def split_script(arguments: Sequence[str]) -> list[str]:
    """Return a command line in which everything after the script is marked as the script's.

    >>> split_script(["--job_type=4", "--script", "train.py", "--epochs", "3"])
    ['--job_type=4', '--script=train.py', '--script_argument=--epochs', '--script_argument=3']
    """
    for place, argument in enumerate(arguments):
        if argument == _OPTION and place + 1 < len(arguments):
            script, rest = arguments[place + 1], arguments[place + 2 :]
        elif argument.startswith(f"{_OPTION}="):
            script, rest = argument.removeprefix(f"{_OPTION}="), arguments[place + 1 :]
        else:
            continue
        passed = [f"{_PASSED}={word}" for word in rest]
        return [*arguments[:place], f"{_OPTION}={script}", *passed]
    return list(arguments)


def run_script(
    script: Path | None,
    arguments: Sequence[str],
    *,
    configuration: RunConfiguration,
    model: Path | None,
    output: Path | None,
    as_json: bool,
    shown: bool,
) -> None:
    """Tune the gradients of a script and print what came of it, in one process of the group.

    Raises:
        OptionError: options that cannot be meant together.
        EngineNotInstalledError: there is no PyTorch.
        typer.Exit: with the script's own exit code, if it is not 0.
    """
    script = _checked(script, configuration.job_types, model)
    from aoe.report.tuning import TuningReport, report_of
    from aoe.torch.ddp.script_run import TrainingScript
    from aoe.tuning.configuration.resolving import configured
    from aoe.tuning.gdat.result import TunedGradients
    from aoe.tuning.run import tune_with

    program = TrainingScript(path=script, arguments=tuple(arguments))
    settings = configured(TuneSettings(model=program, output=output), configuration)
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        found = tune_with(
            settings,
            env=environment(),
            cwd=Path.cwd(),
            progress=LineProgress() if shown and not as_json else QuietProgress(),
            now=datetime.now(UTC),
        )
    tuned = found.get(TunedGradients)
    if tuned.is_first:
        finish(TuningReport(modes=(report_of(tuned),)), as_json=as_json)
    if tuned.exit_code:
        raise typer.Exit(tuned.exit_code)


def _checked(script: Path | None, job_types: Sequence[JobType], model: Path | None) -> Path:
    if JobType.GDAT not in job_types:
        raise OptionError(
            _OPTION, "a script is for gradient tuning", hint="aoe --job_type=4 --script TRAIN.py"
        )
    if len(job_types) > 1 or model is not None:
        raise OptionError(
            "--job_type",
            "gradient tuning needs a training script and runs alone",
            hint="aoe --job_type=4 --script TRAIN.py",
        )
    if script is None:
        raise OptionError(
            _OPTION,
            "gradient tuning needs a training script",
            hint="torchrun --nproc-per-node=2 -m aoe --job_type=4 --script TRAIN.py",
        )
    if not script.is_file():
        raise OptionError(_OPTION, "no such file", got=script)
    if find_spec("torch") is None:
        raise EngineNotInstalledError(
            "--job_type",
            "gradient tuning needs PyTorch, which is not installed",
            hint="python -m pip install 'aoebank[torch]'",
        )
    return script
