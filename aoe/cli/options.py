"""Options shared by commands: same noun, same flag everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from inspect import Parameter, signature
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_origin

import typer

from aoe.cli.command_options import COMMAND_OPTIONS
from aoe.errors import OptionError
from aoe.runs.configuration.option import Option
from aoe.runs.configuration.options import SETTINGS
from aoe.settings import environment
from aoebank import Report, emit, say

if TYPE_CHECKING:
    from aoe.ort.inputs import InputSet
    from aoe.runs.configuration.resolving import RunConfiguration
    from aoe.tuner.precision.settings import PrecisionSettings

F = TypeVar("F", bound=Callable[..., Any])


def flag(name: str, **changes: Any) -> Any:
    """Return the flag of an option of the table, as typer takes it.

    Args:
        name: Of the row.
        changes: Members of the row that are others in a command, such as its default in words.
    """
    return _flag(replace(COMMAND_OPTIONS[name], **changes))


def _flag(row: Option) -> Any:
    return typer.Option(
        *row.flags,
        metavar=row.metavar,
        min=row.least,
        max=row.most,
        help=row.cli_help or None,
        hidden=row.hidden,
    )


def parameter(row: Option) -> Parameter:
    """Return an option of the table as a parameter of a command."""
    is_open = row.cli_default is None or get_origin(row.cli) is list
    kind = row.cli | None if is_open else row.cli
    default = None if is_open else row.cli_default
    return Parameter(
        row.name,
        Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, _flag(row)],
    )


def with_parameters(rows: Iterable[Option]) -> Callable[[F], F]:
    """Return a decorator for a command that takes options of the table as `**options`."""

    def decorated(command: F) -> F:
        known = signature(command, eval_str=True)
        own = [one for one in known.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
        every = [*own, *map(parameter, rows)]
        command.__signature__ = known.replace(parameters=every)  # type: ignore[attr-defined]
        return command

    return decorated


JsonFlag = Annotated[bool, flag("as_json")]
QuietFlag = Annotated[bool, flag("quiet")]
SeedOption = Annotated[int, flag("seed")]
FrameworkOption = Annotated[int, flag("framework")]
CoresOption = Annotated[int | None, flag("aicore_num")]
TrialsOption = Annotated[int, flag("trials")]
WeightOption = Annotated[Path | None, flag("weight")]
InputShapeOption = Annotated[list[str] | None, flag("input_shape")]
BatchSizesOption = Annotated[str | None, flag("dynamic_batch_size")]
ImageSizesOption = Annotated[str | None, flag("dynamic_image_size")]
DynamicDimsOption = Annotated[str | None, flag("dynamic_dims")]
OutNodesOption = Annotated[str | None, flag("out_nodes")]
OperatorsOption = Annotated[list[Path] | None, flag("custom_ops_library")]
ShapesFromOption = Annotated[Path | None, flag("shapes_from")]
SocVersionOption = Annotated[str | None, flag("soc_version")]
InputFiles = Annotated[list[str] | None, flag("input_files")]
InputSets = Annotated[Path | None, flag("input_sets")]
BaseResultOption = Annotated[Path | None, flag("base_result")]
ScriptOption = Annotated[Path | None, flag("script")]
ScriptArguments = Annotated[list[str] | None, flag("script_argument")]
WorldOption = Annotated[int | None, flag("world")]
LossNameOption = Annotated[str | None, flag("loss_name")]
PrecisionModeOption = Annotated[str | None, flag("precision_mode")]
MixListOption = Annotated[Path | None, flag("modify_mixlist")]
AccuracyOption = Annotated[str | None, flag("accuracy")]
CalibrationOption = Annotated[Path | None, flag("calibration")]
StrictOption = Annotated[bool, flag("strict_fp32")]
DeviceOption = Annotated[str | None, flag("device")]
ConfigOption = Annotated[Path | None, flag("config")]
Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="Threads; default is what the model was tuned for."),
]
OneShapeOption = Annotated[
    str | None,
    typer.Option(
        "--input_shape",
        metavar="SHAPES",
        help="Shapes of inputs the model leaves open, or those of one case an .om holds.",
    ),
]
SignatureOption = Annotated[
    Path | None,
    typer.Option(
        "--require_signature",
        metavar="SIGNERS",
        help="Refuse an .om that none of these has signed; ssh-keygen(1) has the form of the file.",
    ),
]

_LOG_LEVELS = ("debug", "info", "warning", "error", "null")
_TELLING = ("debug", "info")


def tells_all(log: str | None) -> bool:
    """True if a level of `--log` asks for details.

    Raises:
        OptionError: it is no level.
    """
    if log is not None and log not in _LOG_LEVELS:
        raise OptionError("--log", "no level", got=log, expected=" or ".join(_LOG_LEVELS))
    return log in _TELLING


def check_tuned_model(om: Path | None) -> None:
    """Refuse a path of `--om` that is no tuned model by its name.

    Raises:
        OptionError: it ends in something else than `.om`.
    """
    if om is not None and om.suffix != ".om":
        raise OptionError(
            "--om",
            "no tuned model",
            got=om,
            expected="an .om file of an earlier run",
            hint=f"aoe --model={om} tunes a model, aoe --model_path={om} a directory of them",
        )


def given_configuration(context: typer.Context, config: Path | None) -> RunConfiguration:
    """Return every setting of a command line, its file, the environment and the defaults.

    Raises:
        OptionError: a file cannot be read.
    """
    from aoe.runs.configuration.resolving import configure

    given = {name: context.params[name] for name in SETTINGS if is_given(context, name)}
    return configure(given, env=environment(), cwd=Path.cwd(), config=config)


def given_precision(
    mode: str | None,
    lists: Path | None,
    *,
    strict: bool,
    accuracy: str | None,
    calibration: Path | None,
) -> PrecisionSettings:
    """Return the precision settings of the options.

    Raises:
        OptionError: one cannot be meant, or they contradict each other.
    """
    from aoe.tuner.precision.settings import parse_precision

    return parse_precision(
        mode,
        lists,
        strict=strict,
        accuracy=accuracy,
        calibration=read_calibration(calibration),
    )


def read_calibration(directory: Path | None) -> tuple[InputSet, ...]:
    """Return the input sets of `--calibration`; none without it.

    Raises:
        OptionError: the directory has none, or cannot be read.
    """
    if directory is None:
        return ()
    from aoe.ort.inputs import read_input_sets

    return read_input_sets(directory, "--calibration")


def refuse_gradients(options: Mapping[str, Any]) -> None:
    """Refuse options of gradient tuning in a run of another mode."""
    of_models = "it is for gradient tuning of a model file"
    what = {
        "loss_name": of_models,
        "world": of_models,
        "allow_compression": "it is for gradient tuning",
    }
    for name, why in what.items():
        if options[name] is not None:
            raise OptionError(
                COMMAND_OPTIONS[name].option,
                why,
                got=options[name],
                hint="aoe --job_type=4 --model=M.onnx --loss_name=NAME",
            )


def refuse_empty_paths(arguments: Sequence[str]) -> None:
    """Refuse a path without a character, as a shell makes of a variable that is not set.

    Args:
        arguments: Of the command line, without those of a command.

    Raises:
        OptionError: a path is one, which would stand for the working directory.
    """
    rows = (row for row in COMMAND_OPTIONS.values() if row.cli in (Path, list[Path]))
    names = {name for row in rows for name in row.flags}
    for word, following in pairwise((*arguments, "the end")):
        name, equals, value = word.partition("=")
        if name in names and (not value if equals else following == ""):
            raise OptionError(name, "an empty path", hint="name a path, or leave the option out")


def warn_of_subgraph_options(options: Mapping[str, Any]) -> None:
    """Say which options of subgraph tuning are given in a run without it."""
    for name in ("nonhomo_split", "tune_optimization_level", "anonymous"):
        row = COMMAND_OPTIONS[name]
        if options[name] != row.default:
            say(
                f"warning: {row.option} changes nothing here: "
                "it is for subgraph tuning (--job_type=1, or 1,2)"
            )


class Work(StrEnum):
    """What a command that may run a training works on, in words."""

    ALONE = "what runs without a training"
    MODEL = "the training of a model file"
    SCRIPT = "a training script"


_WORK_WITH: Mapping[str, Sequence[Work]] = {
    **dict.fromkeys(("base_result", "shapes_from", "custom_ops_library"), (Work.ALONE,)),
    **dict.fromkeys(("soc_version", "aicore_num", "trials"), (Work.ALONE,)),
    **dict.fromkeys(("sample", "stale_only", "worst", "undecided"), (Work.ALONE,)),
    **dict.fromkeys(
        (
            *("input_files", "input_sets", "out_nodes", "precision_mode", "modify_mixlist"),
            *("accuracy", "calibration", "strict_fp32", "kernel_memory", "config", "output"),
        ),
        (Work.ALONE,),
    ),
    **dict.fromkeys(("framework", "weight", "input_shape", "seed"), (Work.ALONE, Work.MODEL)),
    "loss_name": (Work.MODEL,),
    "world": (Work.MODEL, Work.SCRIPT),
}
"""What the options are for, by name of the parameter; those that are not here are for all."""


def refuse_unused(context: typer.Context, work: Work) -> None:
    """Refuse options a command would pass over: what it tells would not be what was asked.

    Args:
        context: The call.
        work: What it works on.

    Raises:
        OptionError: an option is given that is for something else.
    """
    for option in context.command.params:
        name = option.name or ""
        works = _WORK_WITH.get(name, (work,))
        if work not in works and is_given(context, name):
            value = context.params[name]
            raise OptionError(
                option.opts[0],
                f"it is for {' or '.join(works)}",
                got=value[0] if isinstance(value, list) else value,
                expected=f"options for {work}",
                hint="leave it out",
            )


def is_given(context: typer.Context, name: str) -> bool:
    """True if an option is on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def given_inputs(files: list[str] | None, directory: Path | None) -> tuple[InputSet, ...]:
    """Return the input sets of `--input` and `--inputs`; none for made-up inputs.

    Raises:
        OptionError: both are given, or one cannot be meant.
    """
    if not files and directory is None:
        return ()
    from aoe.ort.inputs import parse_inputs, read_input_sets

    if directory is None:
        return parse_inputs(files or ())
    if files:
        raise OptionError("--inputs", "given together with --input", got=files[0])
    return read_input_sets(directory)


def finish(report: Report, *, as_json: bool) -> int:
    """Write a report the way this call asked for; return the exit code."""
    no_color = bool(environment().get("NO_COLOR"))
    return emit(report, as_json=as_json, no_color=no_color, indent=None)
