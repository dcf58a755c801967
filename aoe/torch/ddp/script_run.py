"""Runs a training script as it is and lets its gradients be tuned on the way."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from aoe.errors import AoeError, EndedEarlyError, LeftAloneError, OptionError, RunError
from aoe.gradients.training import Training
from aoe.torch.ddp.gradients import reduced_training
from aoe.torch.ddp.sharding import refused_sharding
from aoe.torch.ddp.step_gate import StepGate
from aoebank import say

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingScript:
    """A script that trains a `DistributedDataParallel` model, for `aoe.tune`.

    It is run as `python SCRIPT ARGUMENTS` would, in every process of the group, and the first
    DDP model it trains is tuned. Its first steps are used for recording and measuring; they are
    its own steps, with its own data, and train as they always do. The grouping found stays in
    use until the script ends.

    Attributes:
        path: The script.
        arguments: Its command line.
        goes_on: False to end the script once its gradients are tuned, or looked at.
    """

    path: Path
    arguments: tuple[str, ...] = ()
    goes_on: bool = True

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.path.name

    def run(self, tune: Callable[[Training], T]) -> tuple[T, int]:
        """Run it; return what `tune` made of its training, and its exit code.

        The script runs to its end, or as far as `tune` needs it where it does not go on.

        Raises:
            RunError: the script failed, tuning failed, or no DDP model is trained. Its `exit_code`
                is the script's own where that is not 0.
            EndedEarlyError: the script ended before tuning was done.
            LeftAloneError, OptionError: its DDP model cannot be tuned and trained on as it is.
                These three have the script's own `exit_code`, 0 included, where the script goes
                on: a launcher calls the training failed that ends with another. One that uses FSDP
                was ended, and has 2.
        """

        def tune_module(ddp: Any, step: Any) -> T:
            with reduced_training(ddp, step, timeout_s=None) as training:
                try:
                    return tune(training)
                except LeftAloneError:
                    training.leave_alone()
                    raise

        gate = StepGate(tune_module, ends_script=not self.goes_on)
        with refused_sharding(), gate.watching():
            exit_code = run_script(self.path, self.arguments)
        if gate.error is not None:
            raise _ending_as(gate.error, exit_code, goes_on=self.goes_on)
        if not gate.is_tuned:
            short = _too_short(self.path, gate.steps)
            raise _ending_as(short, exit_code, goes_on=self.goes_on)
        return cast(T, gate.result), exit_code


def _too_short(script: Path, steps: int) -> RunError:
    problem = f"ended after {steps} training steps of DistributedDataParallel"
    expected = "some hundred"
    if steps:
        return EndedEarlyError(str(script), problem, expected=expected)
    return RunError(
        str(script),
        problem,
        expected=expected,
        hint="train with torch.nn.parallel.DistributedDataParallel, in this process",
    )


def _ending_as(error: BaseException, exit_code: int, *, goes_on: bool) -> BaseException:
    """Return an error that ends the command as the script ended.

    Where that was well: with 0 if a training that goes on was only not tuned, else with 3.
    """
    is_left = goes_on and isinstance(error, EndedEarlyError | LeftAloneError | OptionError)
    if isinstance(error, AoeError):
        error.exit_code = exit_code if is_left else exit_code or RunError.exit_code
    return error


def run_script(script: Path, arguments: Sequence[str]) -> int:
    """Run the script as the main program and return its exit code."""
    with _as_main(script, arguments):
        try:
            runpy.run_path(str(script), run_name="__main__")
        except SystemExit as exit_:
            if exit_.code is None or isinstance(exit_.code, int):
                return exit_.code or 0
            say(str(exit_.code))
            return 1
        except AoeError:
            raise
        except Exception as error:
            traceback.print_exc()
            failure = RunError(str(script), f"failed: {type(error).__name__}: {error}")
            failure.exit_code = 1  # what Python ends with
            raise failure from error
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
