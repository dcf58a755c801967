"""Runs a training script as it is and tunes its gradients on the way."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist

from aoe.errors import AoeError, RunError
from aoe.torch.ddp.gradients import TunedGradients, tune_gradients
from aoe.torch.ddp.step_gate import StepGate
from aoe.tuning.gdat.training import GdatSettings
from aoe.tuning.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptOutcome:
    """What became of a script and of its gradients.

    Attributes:
        tuned: What was found.
        is_first: True in the process that speaks for all.
        exit_code: The script's own.
    """

    tuned: TunedGradients
    is_first: bool
    exit_code: int


def tune_script(
    script: Path,
    arguments: Sequence[str],
    *,
    output: Path | None,
    settings: GdatSettings,
    progress: Progress,
) -> ScriptOutcome:
    """Run a script as `python SCRIPT ARGUMENTS` would and tune the first DDP model it trains.

    Its first steps are used for recording and measuring; they are its own steps, with its own
    data, and train as they always do. The grouping found stays in use until the script ends.

    Raises:
        RunError: the script failed, ended before tuning was done, or trains no DDP model.
        AoeError, AoebankError: see `tune_gradients`.
    """
    is_first = True

    def tune(ddp: Any, step: Any) -> TunedGradients:
        nonlocal is_first
        is_first = dist.get_rank(ddp.process_group) == 0
        return tune_gradients(
            ddp, step, output=output, settings=settings, progress=progress, timeout_s=None
        )

    gate = StepGate(tune)
    with gate.watching():
        exit_code = _run(script, arguments)
    if gate.error is not None:
        raise gate.error
    if gate.result is None:
        raise RunError(
            str(script),
            f"ended after {gate.steps} training steps of DistributedDataParallel",
            expected="enough to tune with: some hundred",
            hint="train with torch.nn.parallel.DistributedDataParallel, in this process, longer",
        )
    return ScriptOutcome(tuned=gate.result, is_first=is_first, exit_code=exit_code)


def _run(script: Path, arguments: Sequence[str]) -> int:
    """Run the script as the main program and return its exit code."""
    with _as_main(script, arguments):
        try:
            runpy.run_path(str(script), run_name="__main__")
        except SystemExit as exit_:
            if exit_.code is None or isinstance(exit_.code, int):
                return exit_.code or 0
            print(exit_.code, file=sys.stderr)
            return 1
        except AoeError:
            raise
        except Exception as error:
            traceback.print_exc()
            raise RunError(str(script), f"failed: {type(error).__name__}: {error}") from error
    return 0


@contextmanager
def _as_main(script: Path, arguments: Sequence[str]) -> Iterator[None]:
    saved_arguments, saved_path = sys.argv, sys.path[:]
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = saved_arguments, saved_path
