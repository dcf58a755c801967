"""The `aoe` command: options tune a model, sub-commands use the result."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from aoe.cli.cann import ascend_target, hand_over
from aoe.cli.elsewhere import warnings_of, without_atc_only, without_elsewhere
from aoe.cli.errors import engine_of, run_app
from aoe.cli.gdat_command import (
    refuse_inference_options,
    run_model,
    run_script,
    split_script,
)
from aoe.cli.help import EXAMPLES, NOTES, OPTION_SECTIONS, SECTIONS
from aoe.cli.options import (
    AccuracyOption,
    AllowCompressionOption,
    AnonymousFlag,
    BaseResultOption,
    BatchSizesOption,
    CalibrationOption,
    ConfigOption,
    CoresOption,
    DeviceOption,
    DynamicDimsOption,
    FrameworkOption,
    ImageSizesOption,
    InputFiles,
    InputSets,
    InputShapeOption,
    JsonFlag,
    LogOption,
    LookupOnlyOption,
    LossNameOption,
    MemoryOption,
    MixListOption,
    NonhomoSplitFlag,
    OperatorsOption,
    OutNodesOption,
    PrecisionModeOption,
    QuietFlag,
    SeedOption,
    ShapesFromOption,
    SocVersionOption,
    StageOption,
    StrictOption,
    TrialsOption,
    TuneLevelOption,
    TuneOpsOption,
    WeightOption,
    WorkersOption,
    WorldOption,
    check_tuned_model,
    finish,
    given_configuration,
    given_inputs,
    given_precision,
    refuse_gradients,
    refuse_precision,
    tells_all,
)
from aoe.cli.registry import COMMANDS
from aoe.errors import OptionError
from aoe.settings import environment, parse_switch
from aoe.tuning.engine.parts import REAL_ENGINE, EngineParts
from aoe.tuning.mode import JobType, OptimizationLevel, TuneSettings
from aoebank import CommandGroup, say


class _Commands(CommandGroup):
    package = "aoe.cli"
    summaries = COMMANDS
    sections = SECTIONS
    option_sections = OPTION_SECTIONS
    examples = EXAMPLES
    notes = NOTES

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take options of CANN's AOE out, and give `--json` to the command it stands before.

        A job for an Ascend processor is CANN's as a whole.
        """
        place = next((at for at, word in enumerate(args) if word in COMMANDS), len(args))
        soc_version = ascend_target(args[:place])
        if soc_version is not None and place == len(args):
            ctx.exit(hand_over(args, soc_version))
        own, warnings = without_elsewhere(args[:place])
        command = args[place:]
        if command[:1] == ["compile"]:
            words, more = without_atc_only(command[1:])
            command, warnings = ["compile", *words], [*warnings, *more]
        for text in warnings:
            say(f"warning: {text}")
        if command and "--json" in own:
            own.remove("--json")
            command.append("--json")
        rest: list[str] = super().parse_args(ctx, [*own, *command])
        return rest


app = typer.Typer(
    name="aoe",
    cls=_Commands,
    help="Tune a model for the hardware it runs on, and remember what was learned. "
    "Options alone tune; the commands use what came of it.",
    subcommand_metavar="[COMMAND ...]",
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def tune(
    context: typer.Context,
    model: Annotated[
        Path | None, typer.Option("--model", "-m", metavar="FILE", help="Model file.")
    ] = None,
    model_path: Annotated[
        Path | None,
        typer.Option(
            "--model_path",
            metavar="DIR",
            help="Directory of models, or a dump of aoe.torch.set_aoe: all are tuned.",
        ),
    ] = None,
    om: Annotated[
        Path | None,
        typer.Option("--om", metavar="X.om", help="Tuned model: the model in it is tuned again."),
    ] = None,
    framework: FrameworkOption = 5,
    job_type: Annotated[
        str,
        typer.Option(
            "--job_type",
            "-j",
            metavar="MODE",
            help="1 (or sgat) = subgraph, 2 (or opat) = operator, 4 (or gdat) = gradient tuning; "
            "a comma list runs them in order.",
        ),
    ] = "2",
    stage: StageOption = None,
    weight: WeightOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="DIR|FILE.om",
            help="Where the tuned model, the reports and the records it uses go.",
        ),
    ] = None,
    input_shape: InputShapeOption = None,
    shapes_from: ShapesFromOption = None,
    dynamic_batch_size: BatchSizesOption = None,
    dynamic_image_size: ImageSizesOption = None,
    dynamic_dims: DynamicDimsOption = None,
    out_nodes: OutNodesOption = None,
    custom_ops_library: OperatorsOption = None,
    inputs: InputFiles = None,
    input_sets: InputSets = None,
    soc_version: SocVersionOption = None,
    aicore_num: CoresOption = None,
    tuning_time_limit: Annotated[
        float | None,
        typer.Option(
            "--tuning_time_limit",
            min=0,
            metavar="SECONDS",
            help="Seconds for searching and judging; default is no limit.",
        ),
    ] = None,
    trials: TrialsOption = 24,
    kernel_memory: MemoryOption = None,
    search: Annotated[
        str,
        typer.Option(
            "--search",
            metavar="METHOD",
            help="How candidates are chosen: bayesian, genetic, random or exhaustive.",
        ),
    ] = "bayesian",
    base_result: BaseResultOption = None,
    tune_ops_file: TuneOpsOption = None,
    lookup_only: LookupOnlyOption = False,
    precision_mode: PrecisionModeOption = None,
    modify_mixlist: MixListOption = None,
    accuracy: AccuracyOption = None,
    calibration: CalibrationOption = None,
    strict_fp32: StrictOption = False,
    nonhomo_split: NonhomoSplitFlag = False,
    tune_optimization_level: TuneLevelOption = OptimizationLevel.O2,
    anonymous: AnonymousFlag = False,
    device: DeviceOption = None,
    workers: WorkersOption = None,
    config: ConfigOption = None,
    script: Annotated[
        Path | None,
        typer.Option(
            "--script",
            metavar="TRAIN.py",
            help="Training script for gradient tuning; all that follows is passed to it.",
        ),
    ] = None,
    loss_name: LossNameOption = None,
    allow_compression: AllowCompressionOption = None,
    world: WorldOption = None,
    script_argument: Annotated[
        list[str] | None, typer.Option("--script_argument", hidden=True)
    ] = None,
    progress_bar: Annotated[
        str, typer.Option("--progress_bar", metavar="on|off", help="Show how far the run is.")
    ] = "on",
    log: LogOption = None,
    seed: SeedOption = 0,
    quiet: QuietFlag = False,
    as_json: JsonFlag = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print versions and exit.")] = False,
) -> None:
    """Tune a model for this machine: `aoe --model=M.onnx --job_type=2 --output=DIR`."""
    if context.invoked_subcommand is not None:
        return
    if version:
        _print_versions(as_json=as_json)
        return
    for text in warnings_of(environment()):
        say(f"warning: {text}")
    shown = parse_switch("--progress_bar", progress_bar, default=True) and not quiet
    from aoe.tuning.configuration.resolving import configured

    found = given_configuration(context, config).check()
    jobs = found.job_types
    precision = given_precision(
        precision_mode,
        modify_mixlist,
        strict=strict_fp32,
        accuracy=accuracy,
        calibration=calibration,
    )
    chosen = _one_of({"--model": model, "--model_path": model_path, "--om": om})
    check_tuned_model(om)
    if script is not None or JobType.GDAT in jobs:
        refuse_inference_options(
            {
                "--om": om,
                "--base_result": base_result,
                "--input": inputs,
                "--inputs": input_sets,
                "--shapes_from": shapes_from,
                "--dynamic_batch_size": dynamic_batch_size,
                "--dynamic_image_size": dynamic_image_size,
                "--dynamic_dims": dynamic_dims,
                "--out_nodes": out_nodes,
                "--custom_ops_library": custom_ops_library,
                "--tune_ops_file": tune_ops_file,
            }
        )
        refuse_precision(precision)
        if model is not None and script is None:
            run_model(
                model,
                configuration=found,
                loss_name=loss_name,
                shapes=input_shape or (),
                world=world,
                framework=framework,
                weight=weight,
                seed=seed,
                allow_compression=allow_compression,
                output=output,
                as_json=as_json,
                shown=shown,
            )
            return
        run_script(
            script,
            script_argument or (),
            configuration=found,
            model=model,
            allow_compression=allow_compression,
            output=output,
            as_json=as_json,
            shown=shown,
        )
        return
    refuse_gradients(loss_name, world, allow_compression)
    if chosen is None:
        raise OptionError(
            "aoe", "no model given", hint="aoe --model=M.onnx --output=DIR, or --help"
        )
    from aoe.cli.tune_command import run_folder, run_tuning
    from aoe.entry.outputs import parse_out_nodes
    from aoe.tuning.cases.given import given_cases
    from aoe.tuning.operator_choice import given_operators

    settings = TuneSettings(
        model=chosen,
        framework=framework if model is not None else None,
        weight=weight,
        **given_cases(
            input_shape or (),
            batch_size=dynamic_batch_size,
            image_size=dynamic_image_size,
            dims=dynamic_dims,
            log=shapes_from,
        ),
        out_nodes=parse_out_nodes(out_nodes),
        operators=tuple(custom_ops_library or ()),
        inputs=given_inputs(inputs, input_sets),
        output=output,
        base_result=base_result,
        tune_ops=given_operators(tune_ops_file),
        lookup_only=lookup_only,
        precision=precision,
        nonhomo_split=nonhomo_split,
        tune_optimization_level=tune_optimization_level,
        anonymous=anonymous,
    )
    run = run_tuning if model_path is None else run_folder
    run(
        configured(settings, found),
        as_json=as_json,
        shown=shown,
        details=tells_all(log) and not quiet,
        engine=engine_of(context),
    )


def _one_of(options: Mapping[str, Path | None]) -> Path | None:
    """Return the path that is given, None if there is none.

    Raises:
        OptionError: there are two.
    """
    given = [(name, path) for name, path in options.items() if path is not None]
    if len(given) > 1:
        (first, _), (second, got), *_ = given
        raise OptionError(second, f"given together with {first}", got=got)
    return given[0][1] if given else None


def _print_versions(*, as_json: bool) -> None:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    from aoe.report.answers import VersionReport

    versions: dict[str, str | None] = {}
    for name in ("aoebank", "onnxruntime", "halide", "onnx"):
        try:
            versions[name] = installed(name)
        except PackageNotFoundError:
            versions[name] = None
    finish(VersionReport(versions=versions), as_json=as_json)


def atc_main(arguments: Sequence[str] | None = None) -> None:
    """Run `aoe compile` and exit with its code: the console script `aoe-atc`.

    Args:
        arguments: After the name of the program; None for those of this process.
    """
    words = map(_spelled, sys.argv[1:] if arguments is None else arguments)
    sys.exit(run_app(app, ["compile", *words], called="aoe-atc"))


def _spelled(word: str) -> str:
    """Return an option of atc as it is spelled here: `-soc-version=x` is `--soc_version=x` there.

    Source: ATC documentation, overview of options.
    """
    name, equals, value = word.partition("=")
    if not re.fullmatch(r"--?[A-Za-z][A-Za-z0-9_-]{2,}", name):
        return word
    return f"--{name.lstrip('-').replace('-', '_')}{equals}{value}"


def main(arguments: Sequence[str] | None = None, *, engine: EngineParts = REAL_ENGINE) -> None:
    """Run the command line and exit with its code.

    Args:
        arguments: After the name of the program; None for those of this process.
        engine: What commands tune with.
    """
    given = sys.argv[1:] if arguments is None else arguments
    sys.exit(run_app(app, split_script(given), engine=engine))
