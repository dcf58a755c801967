"""Options shared by commands: same noun, same flag everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aoe.errors import OptionError
from aoe.settings import LARGEST_SEED, environment
from aoe.tuning.mode import OptimizationLevel
from aoebank import Report, emit

if TYPE_CHECKING:
    from aoe.ort.inputs import InputSet
    from aoe.tuning.configuration.resolving import RunConfiguration
    from aoe.tuning.precision.settings import PrecisionSettings

JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output.")
]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]
Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="Threads; default is what the model was tuned for."),
]
SeedOption = Annotated[
    int,
    typer.Option(
        "--seed",
        metavar="N",
        min=0,
        max=LARGEST_SEED,
        help="Seed of random inputs and of the search.",
    ),
]
FrameworkOption = Annotated[
    int,
    typer.Option(
        "--framework",
        "-f",
        help="Kind of the model: 0 = Caffe, 3 = TensorFlow, 5 = ONNX.",
        metavar="N",
    ),
]
CoresOption = Annotated[
    int | None,
    typer.Option(
        "--aicore_num",
        min=1,
        metavar="N",
        help="Cores, a thread each; default is what an .om was tuned for, else all usable ones.",
    ),
]
TrialsOption = Annotated[
    int, typer.Option("--trials", min=1, metavar="N", help="Most candidates for one operator.")
]
MemoryOption = Annotated[
    int | None,
    typer.Option(
        "--memory",
        min=0,
        metavar="MIB",
        help="MiB kernels may keep; default is what keeps a session within 1.1 times its peak.",
    ),
]
OneShapeOption = Annotated[
    str | None,
    typer.Option(
        "--input_shape",
        metavar="SHAPES",
        help="Shapes of inputs that leave them open, or one of those an .om holds.",
    ),
]
WeightOption = Annotated[
    Path | None,
    typer.Option("--weight", "-w", metavar="FILE", help="Weights of a Caffe model (caffemodel)."),
]
InputShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input_shape",
        metavar="SHAPES",
        help='Shapes of inputs that leave them open: "name:1,3,224,224;other:1,16"; several '
        "times for a tuned model that holds several shapes.",
    ),
]
BatchSizesOption = Annotated[
    str | None,
    typer.Option(
        "--dynamic_batch_size",
        metavar="N,N,...",
        help="Values of first extents that are -1 in --input_shape: 1,2,4.",
    ),
]
ImageSizesOption = Annotated[
    str | None,
    typer.Option(
        "--dynamic_image_size",
        metavar="H,W;...",
        help='Values of two extents that are -1: "416,416;832,832".',
    ),
]
DynamicDimsOption = Annotated[
    str | None,
    typer.Option(
        "--dynamic_dims",
        metavar="N,...;...",
        help='Values of all extents that are -1, in their order: "1,224;8,448".',
    ),
]
OutNodesOption = Annotated[
    str | None,
    typer.Option(
        "--out_nodes",
        metavar="NODE:N;...",
        help='Cut the model off at these results first: "conv1:0;relu2:0".',
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
OperatorsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--custom_ops_library",
        metavar="FILE.so",
        help="Library of operators ONNX Runtime does not have; several times for several.",
    ),
]
ShapesFromOption = Annotated[
    Path | None,
    typer.Option(
        "--shapes_from",
        metavar="FILE",
        help='Log of shapes, a line each: "COUNT,name:1,3,224,224"; frequent ones first.',
    ),
]
LossNameOption = Annotated[
    str | None,
    typer.Option(
        "--loss_name",
        metavar="NAME",
        help="Output of the model that is its loss, for gradient tuning of a model file.",
    ),
]
AllowCompressionOption = Annotated[
    str | None,
    typer.Option(
        "--allow_compression",
        metavar="bf16|fp16",
        help="Gradient tuning may sum gradients in 16 bits: results differ in rounding.",
    ),
]
WorldOption = Annotated[
    int | None,
    typer.Option(
        "--world",
        min=2,
        metavar="N",
        help="Processes a model file is trained in, started on this machine; default is 2.",
    ),
]
SocVersionOption = Annotated[
    str | None,
    typer.Option("--soc_version", metavar="NAME", help="Target; default is this CPU."),
]
InputFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="NAME:FILE.npy",
        help="NAME:x.npy, x.npy or random (default); once for each input of the model.",
    ),
]
InputSets = Annotated[
    Path | None,
    typer.Option(
        "--inputs", help="Directory of several input sets: SET/NAME.npy or SET.npz.", metavar="DIR"
    ),
]

StageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--stage",
        metavar="MODE:SECONDS",
        help="A mode with its own time limit, sgat:28800; once for each, in order, instead of "
        "--job_type and --tuning_time_limit.",
    ),
]
TuneOpsOption = Annotated[
    Path | None,
    typer.Option(
        "--tune_ops_file",
        metavar="FILE",
        help="JSON file of the operators to tune, by name or type, as for AOE; the others have "
        "what the bank has.",
    ),
]
LookupOnlyOption = Annotated[
    bool,
    typer.Option(
        "--lookup_only", help="Take what the bank has; nothing is tried, measured or remembered."
    ),
]
BaseResultOption = Annotated[
    Path | None,
    typer.Option(
        "--base_result",
        metavar="DIR|X.om|BANK",
        help="An earlier --output, tuned model or bank: only what changed since is tuned.",
    ),
]
PrecisionModeOption = Annotated[
    str | None,
    typer.Option(
        "--precision_mode",
        metavar="MODE",
        help="must_keep_origin_dtype (default), allow_fp32_to_bf16, allow_mix_precision_bf16, "
        "allow_mix_precision_int8 or allow_mix_precision_int4.",
    ),
]
MixListOption = Annotated[
    Path | None,
    typer.Option(
        "--modify_mixlist",
        metavar="FILE",
        help="JSON file of operators kept in float32, or not, as for CANN.",
    ),
]
AccuracyOption = Annotated[
    str | None,
    typer.Option(
        "--accuracy",
        metavar="CONSTRAINT",
        help="What the model must keep: 'cosine>=0.999' (default below float32), "
        "'max_relative<=0.01' or 'FILE.py:FUNCTION>=VALUE'.",
    ),
]
CalibrationOption = Annotated[
    Path | None,
    typer.Option(
        "--calibration",
        help="Directory of input sets accuracy is checked on; default is --inputs.",
        metavar="DIR",
    ),
]
StrictOption = Annotated[
    bool,
    typer.Option(
        "--strict_fp32", "--deterministic", help="No kernels that transform sums, such as Winograd."
    ),
]
NonhomoSplitFlag = Annotated[
    bool,
    typer.Option("--Fnonhomo_split", help="Batches of subgraphs may be cut unevenly, 7 as 4+3."),
]
TuneLevelOption = Annotated[
    OptimizationLevel,
    typer.Option(
        "--tune_optimization_level",
        help="Subgraphs: O1 lifts AOE's limits of fusions and tries every rewrite rule.",
    ),
]
AnonymousFlag = Annotated[
    bool,
    typer.Option("--anonymous", help="Leave the name of the model out of records of subgraphs."),
]
LogOption = Annotated[
    str | None,
    typer.Option(
        "--log", metavar="LEVEL", help="debug and info tell every rule that is tried, and why not."
    ),
]
DeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="N",
        help="NUMA node to pin the run to; 0 is this CPU where there is one node.",
    ),
]
WorkersOption = Annotated[
    str | None,
    typer.Option(
        "--workers",
        metavar="N|tcp://HOST:PORT",
        help="Tune on N processes here, or on the workers of a Dask scheduler.",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="Settings of a run: sgat_config.json, or an aoe.ini."
    ),
]


_LOG_LEVELS = ("debug", "info", "warning", "error", "null")
_TELLING = ("debug", "info")


def tells_all(log: str | None) -> bool:
    """Return whether a level of `--log` asks for details.

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
    from aoe.tuning.configuration.resolving import configure
    from aoe.tuning.configuration.rows import SETTINGS

    given: dict[str, object] = {}
    for name in SETTINGS:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            given[name] = context.params[name]
    return configure(given, env=environment(), cwd=Path.cwd(), config=config)


def given_precision(
    mode: str | None,
    lists: Path | None,
    *,
    strict: bool,
    accuracy: str | None,
    calibration: Path | None,
) -> PrecisionSettings:
    """Return what the options of precision ask for.

    Raises:
        OptionError: one cannot be meant, or they contradict each other.
    """
    from aoe.tuning.precision.settings import parse_precision

    sets: tuple[InputSet, ...] = ()
    if calibration is not None:
        from aoe.ort.inputs import read_input_sets

        sets = read_input_sets(calibration, "--calibration")
    return parse_precision(mode, lists, strict=strict, accuracy=accuracy, calibration=sets)


def refuse_gradients(
    loss_name: str | None, world: int | None, allow_compression: str | None
) -> None:
    """Refuse options of gradient tuning in a run of another mode."""
    of_models = "it is for gradient tuning of a model file"
    for option, value, what in (
        ("--loss_name", loss_name, of_models),
        ("--world", world, of_models),
        ("--allow_compression", allow_compression, "it is for gradient tuning"),
    ):
        if value is not None:
            raise OptionError(
                option, what, got=value, hint="aoe --job_type=4 --model=M.onnx --loss_name=NAME"
            )


def refuse_precision(precision: PrecisionSettings) -> None:
    """Refuse options of precision where a training script decides about it.

    Raises:
        OptionError: one is given.
    """
    from aoe.tuning.precision.settings import KEEP_FLOAT32

    if precision != KEEP_FLOAT32:
        raise OptionError(
            "--precision_mode",
            "gradient tuning leaves precision to the training script",
            hint="leave the options of precision out",
        )


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
