"""`aoe --job_type=4`: tune the gradients of a training script, or of a model file with a loss.

Of a script `--job_type=2` tunes the operators of both passes, and `2,4` both in one run of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from aoe.child_python import AOE, python_command
from aoe.cli.command_options import COMMAND_OPTIONS
from aoe.cli.options import finish, read_calibration, warn_of_subgraph_options
from aoe.cli.progress import LineProgress, QuietProgress
from aoe.errors import (
    AoeError,
    EndedEarlyError,
    EngineNotInstalledError,
    LeftAloneError,
    OptionError,
)
from aoe.gradients import compression
from aoe.gradients.compression import parse_compression
from aoe.settings import environment
from aoe.tuner.mode import JobType, TuneSettings
from aoe.tuner.precision.settings import KEEP_FLOAT32
from aoe.tuner.progress import Progress
from aoebank import say

if TYPE_CHECKING:
    from aoe.gradients.training import TrainingProgram
    from aoe.runs.configuration.resolving import RunConfiguration
    from aoe.torch.ddp.script_run import TrainingScript
    from aoe.torch.scripts.running import TunedScript
    from aoebank import Report

_OPTION = "--script"
_PASSED = "--script_argument"
_WORLD = 2
_OF_INFERENCE = (
    *("om", "input_files", "input_sets", "shapes_from", "dynamic_batch_size"),
    *("dynamic_image_size", "dynamic_dims", "out_nodes", "custom_ops_library", "tune_ops_file"),
)
"""Options of models that are run."""
_OF_MODEL_FILES = ("model_path", "framework", "weight", "input_shape")
"""Options of model files, which a script has none of."""
_OF_SEARCH = ("trials", "search", "seed")
"""Options of a search; the made-up data of a model file has the seed, too."""
_STDOUT, _STDERR = 1, 2


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


def refuse_inference_options(options: Mapping[str, Any]) -> None:
    """Refuse options of models that are run, not trained; passed over they would mislead.

    Args:
        options: Values of the command line, by name in the table of options.

    Raises:
        OptionError: one of them is given.
    """
    has_script = options["script"] is not None
    for name in (*_OF_INFERENCE, *(_OF_MODEL_FILES if has_script else ())):
        value, row = options[name], COMMAND_OPTIONS[name]
        if value and value != row.initial:
            raise OptionError(
                row.option,
                "no option of a training script, which brings its own model and data"
                if has_script
                else "no option of gradient tuning, which goes by the parameters of a training",
                got=value[0] if isinstance(value, list) else value,
                hint="leave it out; what the bank has is used in any case",
            )
    from aoe.runs.configuration.resolving import precision_of

    precision = precision_of(options, read_calibration(options["calibration"]))
    if precision != KEEP_FLOAT32:
        raise OptionError(
            "--precision_mode",
            "precision is left to the training script",
            hint="leave the options of precision out",
        )


def tune_training(
    options: Mapping[str, Any], configuration: RunConfiguration, *, as_json: bool, shown: bool
) -> None:
    """Tune a training script, or the gradients of a model file with a loss; print the result.

    A script runs in one process of the group; a model file in the processes of a group, which are
    started if need be.

    Args:
        options: Values of the command line, by name in the table of options.
        configuration: Settings of the run.
        as_json: True for one document.
        shown: False for no progress.

    Raises:
        OptionError: options that cannot be meant together.
        EngineNotInstalledError: there is no PyTorch.
        typer.Exit: with the exit code of the script or of the processes, if it is not 0.
    """
    from aoe.runs.configuration.resolving import settings_of

    _check_options_of_modes(options, configuration)
    _warn_of_search_options(options, configuration)
    if is_first_process():
        warn_of_subgraph_options(options)
    progress = gradient_progress(shown=shown and not as_json)
    asked = {name: options[name] for name in ("output", "allow_compression")}
    if options["model"] is not None and options["script"] is None:
        program = _model_program(options, configuration, progress)
        settings = settings_of(program, asked, configuration)
        _TrainingRun(settings, progress, as_json=as_json).tune()
        return
    script = _script_program(options, configuration)
    settings = settings_of(script, asked, configuration)
    if JobType.OPAT in settings.job_types:
        settings = _sharing_time(settings)
        operators = _operator_tuning(script.path, options, configuration, settings)
        script = replace(script, operators=operators)
        settings = replace(settings, model=script)
        if is_first_process():
            then = "then its gradients" if JobType.GDAT in settings.job_types else "as it runs"
            progress.step(
                f"tuning the operators of {script.name} in its first {operators.first_steps} "
                f"steps, {then}"
            )
    _TrainingRun(settings, progress, script, as_json=as_json).tune()


def observed_program(
    options: Mapping[str, Any],
    job_types: Sequence[JobType] = (JobType.GDAT,),
    *,
    bank: Path | None = None,
    as_recorded: bool = False,
    on_event: Callable[[str], object],
) -> TrainingProgram:
    """Return a training that runs until enough is known of it, in a process of its group.

    Without `torchrun` around it, a command starts the processes itself, on this machine: those of a
    script with the threads the bank's records were measured with, or with one, as `torchrun` does.

    Args:
        options: Values of the command line, by name in the table of options; `input_shape` is the
            text of one shape.
        job_types: Modes that are asked for.
        bank: Folder of the gradient bank; None for what `TUNE_BANK_PATH` says.
        as_recorded: True for as many processes as the bank's records were measured with, where
            `world` says nothing.
        on_event: Is told what the model was taken for.

    Raises:
        OptionError: there is neither a script nor a model file, or both.
        AoebankError: the bank cannot be read.
        EngineNotInstalledError: there is no PyTorch.
        typer.Exit: with the exit code of the processes, in the one that has started them.
    """
    script, model, world = options["script"], options["model"], options["world"]
    if tuple(job_types) != (JobType.GDAT,):
        raise OptionError(
            "--job_type",
            "of a training, only its gradients are looked at",
            got=",".join(job_types),
            hint="--job_type=4; for the operators of a script --job_type=2, which plan alone takes",
        )
    if (script is None) == (model is None):
        raise OptionError(
            _OPTION,
            "gradients are looked at in a training: of a script, or of a model file with a loss",
            hint="--script TRAIN.py as the last option, or a model file and --loss_name",
        )
    option, file = (_OPTION, script) if script is not None else ("--model", model)
    if file is not None and not file.is_file():
        raise OptionError(option, "no such file", got=file)
    _check_torch("torch" if script is not None else "gdat")
    env = environment()
    if "RANK" not in env:
        from aoe.tasks.gradients.looking_up import recorded_group

        known = recorded_group(bank, env, Path.cwd(), cores=_cores())
        world = world or (known.world if as_recorded else None)
        threads = None if script is None else known.threads or 1
        raise typer.Exit(_run_group(world, env, threads=threads))
    _check_world(world, env)
    if script is not None:
        from aoe.torch.ddp.script_run import TrainingScript

        arguments = tuple(options["script_argument"] or ())
        return TrainingScript(path=script, arguments=arguments, goes_on=False)
    return _training_model(options, on_event, env)


def _training_model(
    options: Mapping[str, Any], on_event: Callable[[str], object], env: Mapping[str, str]
) -> TrainingProgram:
    from aoe.torch.model_files.model_run import TrainingModel

    return TrainingModel(
        path=options["model"],
        loss_name=options["loss_name"],
        framework=options.get("framework", 5),
        weight=options.get("weight"),
        input_shape=options["input_shape"],
        seed=options.get("seed", 0),
        on_event=on_event,
        env=env,
    )


def gradient_progress(*, shown: bool) -> Progress:
    """Return the progress of a training: lines, as the script prints between them."""
    return LineProgress() if shown else QuietProgress()


def is_first_process() -> bool:
    """True in the process of a group that prints; in one that is in no group, too."""
    return environment().get("RANK", "0") == "0"


def _script_program(options: Mapping[str, Any], configuration: RunConfiguration) -> TrainingScript:
    script = _checked(options["script"], configuration.job_types, options["model"])
    _check_world(options["world"], environment())
    if options["loss_name"] is not None:
        raise OptionError("--loss_name", "it is for a model file", got=options["loss_name"])
    parse_compression(options["allow_compression"])
    from aoe.torch.ddp.script_run import TrainingScript

    return TrainingScript(path=script, arguments=tuple(options["script_argument"] or ()))


def _check_options_of_modes(options: Mapping[str, Any], configuration: RunConfiguration) -> None:
    """Refuse options of a mode that is not asked for."""
    is_of_operators = options["script"] is not None and JobType.OPAT in configuration.job_types
    if options["base_result"] is not None and not is_of_operators:
        raise OptionError(
            "--base_result",
            "gradients have no earlier result, the bank says what is known of them",
            got=options["base_result"],
            hint="leave it out; for the operators of a script: --job_type=2 --script TRAIN.py",
        )
    if options["allow_compression"] is not None and JobType.GDAT not in configuration.job_types:
        raise OptionError(
            compression.OPTION,
            "it is for gradient tuning",
            got=options["allow_compression"],
            hint="aoe --job_type=2,4 --script TRAIN.py",
        )


def _warn_of_search_options(options: Mapping[str, Any], configuration: RunConfiguration) -> None:
    """Say which options of a search are given: a training has none."""
    from aoe.runs.configuration.resolving import SettingSource

    for name in _OF_SEARCH:
        is_given = configuration.settings[name].source is SettingSource.OPTION
        if is_given and (name != "seed" or options["script"] is not None) and is_first_process():
            say(
                f"warning: {COMMAND_OPTIONS[name].option} changes nothing here: "
                "of a training, every candidate is compared"
            )


def _sharing_time(settings: TuneSettings) -> TuneSettings:
    """Return the settings with the time of each mode: a stage's own, or an equal part of all."""
    limit_s = settings.tuning_time_limit_s
    if settings.stage_limits_s:
        limit_s = settings.stage_limits_s[0]
    elif limit_s is not None:
        limit_s /= len(settings.job_types)
    return replace(settings, tuning_time_limit_s=limit_s, stage_limits_s=())


def _operator_tuning(
    script: Path,
    options: Mapping[str, Any],
    configuration: RunConfiguration,
    settings: TuneSettings,
) -> TunedScript:
    """Return the run of a script in which its operators are tuned.

    Raises:
        OptionError: an option cannot be meant.
        AoebankError: the bank cannot be used.
    """
    from aoe.bank.operators import bank_root
    from aoe.torch.scripts.running import TunedScript

    env, cwd = environment(), Path.cwd()
    bank_root(env, cwd)  # one that cannot be used is found out before the script runs
    given = {"lookup_only": options["lookup_only"]}
    if (cores := configuration.settings["aicore_num"]).place:
        given["core_num"] = cores.value
    if settings.tuning_time_limit_s is not None:
        given["tuning_time_limit"] = settings.tuning_time_limit_s
    return TunedScript(
        script.name,
        given,
        output=settings.output,
        base_result=options["base_result"],
        env=env,
        cwd=cwd,
        speaks=False,
    )


def _model_program(
    options: Mapping[str, Any], configuration: RunConfiguration, progress: Progress
) -> TrainingProgram:
    """Return the training of a model file, in one of the processes of its group.

    Raises:
        typer.Exit: with the exit code of the processes, in the one that has started them.
    """
    _check_alone(configuration.job_types)
    shapes, world = options["input_shape"] or (), options["world"]
    if len(shapes) > 1:
        raise OptionError("--input_shape", "a model is trained for one shape", got=len(shapes))
    _check_torch("gdat")
    parse_compression(options["allow_compression"])
    env = environment()
    if "RANK" not in env:
        raise typer.Exit(_run_group(world, env))
    _check_world(world, env)
    asked = {**options, "input_shape": shapes[0] if shapes else None}
    return _training_model(asked, progress.step, env)


def _check_world(world: int | None, env: Mapping[str, str]) -> None:
    if world is not None and env.get("WORLD_SIZE") != str(world):
        raise OptionError(
            "--world", "the processes are started by torchrun", got=world, hint="leave it out"
        )


def _run_group(world: int | None, env: Mapping[str, str], *, threads: int | None = None) -> int:
    """Run this command line in several processes; return the exit code.

    Args:
        world: How many; None for 2.
        env: Environment variables.
        threads: Of each; None to share the cores.
    """
    from aoe.torch.model_files.launching import run_group

    world = world or _WORLD
    threads = threads or max(1, _cores() // world)
    code, text = run_group(python_command(AOE, *sys.argv[1:]), world, threads=threads, env=env)
    for line in text.splitlines():
        say(line)
    return code


def _cores() -> int:
    """Return the number of cores this process may use."""
    from aoe.device.registry import default_device

    return len(default_device().cores())


@dataclass(frozen=True, slots=True)
class _TrainingRun:
    """Runs a program, prints the result in the first process, ends with the program's exit code."""

    settings: TuneSettings
    progress: Progress
    script: TrainingScript | None = None  # None for a model file
    as_json: bool = False

    @property
    def operators(self) -> TunedScript | None:
        """Tunes the operators of the script, None where they are left alone."""
        return None if self.script is None else self.script.operators

    def tune(self) -> None:
        """Tune; raise what ends the command otherwise than with 0."""
        reports: list[Report] = []
        left: AoeError | None = None
        try:
            with answering_alone(as_json=self.as_json):
                code = self._run(reports)
        except AoeError as error:
            if not self._is_left(error):
                self._fail(error)
                return
            left, code = error, error.exit_code
        if operators := self._operators_report(left, code):
            reports.insert(0, operators)
        if reports:
            from aoe.report.tuning import TuningReport

            finish(TuningReport(modes=tuple(reports)), as_json=self.as_json)
        if code:
            raise typer.Exit(code)

    def _run(self, reports: list[Report]) -> int:
        """Run the program, add the report on its gradients, return its exit code."""
        from aoe.report.tuning import report_of
        from aoe.runs.gradients.result import TunedGradients
        from aoe.runs.run import tune_with

        if JobType.GDAT not in self.settings.job_types:
            assert self.script is not None
            return self.script.run_alone()
        found = tune_with(
            replace(self.settings, job_types=(JobType.GDAT,)),
            env=environment(),
            cwd=Path.cwd(),
            progress=self.progress,
            now=datetime.now(UTC),
        )
        tuned = found.get(TunedGradients)
        if tuned.is_first:
            reports.append(report_of(tuned))
        return tuned.exit_code

    def _is_left(self, error: AoeError) -> bool:
        """True if gradients alone are not tuned, in a script that has run with its operators."""
        if self.operators is None or not self.operators.is_over:
            return False
        is_asked = JobType.GDAT in self.settings.job_types
        return is_asked and isinstance(error, EndedEarlyError | LeftAloneError | OptionError)

    def _operators_report(self, left: AoeError | None, code: int) -> Report | None:
        """Return the report on operators; None where there is none, and in all other processes."""
        result = self.operators.result if self.operators is not None else None
        if result is None:
            return None
        from aoe.report.tuning import TrainingReport

        return TrainingReport(result=result, gradients=left, script_exit_code=code)

    def _fail(self, error: AoeError) -> None:
        has_document = self.as_json and is_first_process()
        if error.exit_code and not self.as_json and (told := self._operators_report(None, 0)):
            finish(told, as_json=False)  # what the operators became is told in any case
        if error.exit_code or has_document:  # it says what is wrong, whatever the code is
            raise error
        if is_first_process():  # all processes say the same of it
            say(f"warning: not tuned: {error}")
            if error.hint:
                say(f"hint: {error.hint}")


@contextmanager
def answering_alone(*, as_json: bool) -> Iterator[None]:
    """Send what a training prints to standard error where the answer is one document.

    Also what libraries print: gloo greets on torch 2.9.
    """
    if not as_json:
        yield
        return
    with ExitStack() as held:
        with suppress(OSError):  # standard output is closed
            saved = os.dup(_STDOUT)
            held.callback(os.close, saved)
            held.callback(os.dup2, saved, _STDOUT)
            os.dup2(_STDERR, _STDOUT)
        held.enter_context(redirect_stdout(sys.stderr))
        yield


def _checked(script: Path | None, job_types: Sequence[JobType], model: Path | None) -> Path:
    if script is None:
        raise OptionError(
            _OPTION,
            "gradient tuning needs a training script, or a model file with a loss",
            hint="torchrun --nproc-per-node=2 -m aoe --job_type=4 --script TRAIN.py",
        )
    from aoe.torch.script_mode import check_modes

    check_modes([str(job.number) for job in job_types], "--job_type")
    return checked_training_script(script, model, other="--model")


def checked_training_script(
    script: Path, model: Path | None, *, other: str = "a model file"
) -> Path:
    """Return a script that can be run.

    Args:
        script: The file of a training script.
        model: A model file that is given besides, which cannot be.
        other: What that is called.

    Raises:
        OptionError: it is not there, or a model file is given besides.
        EngineNotInstalledError: there is no PyTorch.
    """
    if model is not None:
        raise OptionError(_OPTION, f"given together with {other}", got=script)
    if not script.is_file():
        raise OptionError(_OPTION, "no such file", got=script)
    _check_torch("torch")
    return script


def _check_alone(job_types: Sequence[JobType]) -> None:
    if len(job_types) > 1:
        raise OptionError(
            "--job_type",
            "gradients of a model file are tuned alone",
            got=",".join(job_types),
            hint="of a script operators, too: aoe --job_type=2,4 --script TRAIN.py",
        )


def _check_torch(extra: str) -> None:
    if find_spec("torch") is None:
        raise EngineNotInstalledError(
            "--job_type",
            "tuning a training needs PyTorch, which is not installed",
            hint=f"python -m pip install 'aoebank[{extra}]'",
        )
