"""`aoe benchmark`: time a model, alone or against another one in pairs."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aoe.cli.options import given_inputs
from aoe.errors import OptionError, RunError
from aoe.runs.configuration.option import Option
from aoe.settings import accept_busy, environment, lock_path
from aoe.workload import shapes_text
from aoebank import say

if TYPE_CHECKING:
    from aoe.device.protocol import Device
    from aoe.execute.messages import ModelPart
    from aoe.execute.tasks import ModelComparison
    from aoe.om.file import Manifest
    from aoe.ort.inputs import InputSet
    from aoebank import Report

_TIMEOUT_S = 1800.0
_LARGE_S = 120.0
"""Large models are loaded in turns: after this, as many pairs as an interval needs will do."""


def benchmark(
    model: Annotated[Path, Option(is_argument=True, help="An .om or .onnx file.")],
    *,
    versus: Annotated[
        Path | None,
        Option(
            flags=("--vs",),
            help="Compare with this .om or .onnx; default for an .om is the "
            "untuned model inside it.",
        ),
    ] = None,
    pairs: Annotated[int, Option(least=6, help="Most pairs of runs.")] = 100,
    threads: Annotated[
        int | None, Option(least=1, help="Threads; default is every usable core.")
    ] = None,
    streams: Annotated[
        int,
        Option(
            least=1,
            help="Callers at the same time, of one thread each unless --threads says more: "
            "runs in a second are compared.",
        ),
    ] = 1,
    input_shape: Annotated[
        str | None,
        Option(
            flags=("--input_shape",), help="For .onnx files with open shapes, or one of an .om."
        ),
    ] = None,
    custom_ops_library: list[Path] | None,
    require_signature: Path | None,
    input_files: list[str] | None,
    input_sets: Path | None,
    seed: int,
) -> Report:
    """Time a model against another one, interleaved, with a confidence interval.

    Raises:
        OptionError: there is nothing to compare with.
        AoeError: a model cannot be read, or not be run here.
    """
    from aoe.device.toolchain import Toolchain
    from aoe.entry.input_shapes import parse_input_shape
    from aoe.execute.runner import Runner
    from aoe.execute.tasks import ComparisonTerms
    from aoe.folders.scratch import ScratchFolder, sweep_scratch
    from aoe.folders.turns import Turns
    from aoe.measurement import QUIET_SHARE, MeasurePolicy
    from aoe.ort.inputs import ModelInputs
    from aoe.report.answers import BenchmarkReport
    from aoe.target import unmet_cores

    if versus is None and not _is_om(model):
        raise OptionError(
            "--vs",
            "needed for a model that is not tuned: against itself it only shows noise",
            got=model.name,
            expected="an .om, which has its untuned model inside, or --vs",
            hint=f"aoe benchmark {shlex.quote(str(model))} --vs OTHER.onnx",
        )
    sets = given_inputs(input_files, input_sets)
    first = next(iter(sets), None)
    sweep_scratch()
    with ScratchFolder("bench") as scratch:
        tuned = model_part(model, scratch / "a", input_shape, first, require_signature)
        if versus is None:
            from aoe.om.file import FALLBACK

            baseline, name = _part(scratch / "a" / FALLBACK), "untuned model inside"
        else:
            baseline = model_part(versus, scratch / "b", input_shape, first, require_signature)
            name = str(versus)
        operators = custom_ops_library or ()
        device = _device(model, operators)
        target = device.describe(threads or (1 if streams > 1 else None))
        if unmet := unmet_cores(threads, target.core_num):
            say(f"warning: {unmet}")
        policy = MeasurePolicy(
            pairs_min=min(20, pairs),
            pairs_max=pairs,
            warmup=3,
            target_half_width=0.002,
            enough_s=_LARGE_S if baseline.is_large else math.inf,
            threads=streams * target.core_num,
            least_quiet=0.0 if accept_busy(environment()) else QUIET_SHARE,
            tries=3,
        )
        locks = lock_path(environment())
        turns = Turns(locks, device.cores(), lambda text: say(f"warning: {text}"))
        with Runner(device, target, Toolchain(command=()), turns) as runner:
            comparison: ModelComparison = runner.call(
                "compare_models",
                timeout_s=_TIMEOUT_S,
                baseline=baseline,
                tuned=tuned,
                policy=policy,
                inputs=ModelInputs(sets=sets, seed=seed, shapes=parse_input_shape(input_shape)),
                terms=ComparisonTerms(
                    streams=streams, rounding=baseline if _rounds(baseline) else None
                ),
            )
    return BenchmarkReport(
        model=model,
        baseline=name,
        threads=target.core_num,
        streams=streams,
        comparison=comparison,
        precision=tuned.precision,
        baseline_precision=baseline.precision,
    )


def _rounds(part: ModelPart) -> bool:
    """True of a model that rounds to integers: its own results say how far others may be apart."""
    import onnx

    from aoe.ort.calibration import is_quantised

    return is_quantised(onnx.load(str(part.model), load_external_data=False))


def model_part(
    file: Path,
    directory: Path,
    input_shape: str | None,
    given: InputSet | None = None,
    trusted: Path | None = None,
) -> ModelPart:
    """Unpack an `.om`, or import an `.onnx`, so that it can be timed.

    Args:
        file: Either.
        directory: Folder for its parts.
        input_shape: Shapes of inputs, as AOE writes them.
        given: Files with the values of inputs.
        trusted: File of allowed signers, one of whom has to have signed an `.om`.

    Raises:
        AoeError: the file cannot be used on this machine, or nobody trusted has signed it.
    """
    from aoe.entry.input_shapes import parse_input_shape

    shapes = parse_input_shape(input_shape)
    if _is_om(file):
        from aoe.entry.tuned_model import check_shapes
        from aoe.om.cases import take_out
        from aoe.om.file import unpack
        from aoe.om.loading import tuned_part, unfit_reason

        manifest = unpack(file, directory, trusted)
        if manifest.cases:
            manifest = take_out(directory, manifest, _case(file, manifest, input_shape, given))
        else:
            check_shapes(directory, shapes, given)
        reason = unfit_reason(manifest)
        if reason:
            raise RunError(str(file), f"its kernels do not fit this machine: {reason}")
        return tuned_part(directory, manifest)
    from aoe.entry.onnx_file import load_onnx
    from aoe.graph.weights import WeightStore, is_outside
    from aoe.om.file import WEIGHTS

    directory.mkdir(parents=True, exist_ok=True)
    proto = load_onnx(file, shapes, given).proto
    with WeightStore(directory / WEIGHTS) as store:
        light = store.externalize(proto) if is_outside(proto) else proto
    (directory / "model.onnx").write_bytes(light.SerializeToString())
    return _part(directory / "model.onnx")


def _case(file: Path, manifest: Manifest, input_shape: str | None, given: InputSet | None) -> int:
    """Return the number of the case that is asked for; that of the first if none is.

    Raises:
        OptionError: the file has no such shape.
    """
    from aoe.entry.input_shapes import parse_input_shape
    from aoe.om.cases import asked_case

    if input_shape is None and given is None:
        say(f"{file} holds several shapes; timed is {shapes_text(manifest.cases[0].shapes)}")
        return 0
    shapes = parse_input_shape(input_shape)
    if given is not None:
        files = given.files_of(list(manifest.cases[0].shapes))
        shapes |= {name: array.load().shape for name, array in files.items()}
    return asked_case(file, manifest, shapes)


def _device(model: Path, operators: Sequence[Path]) -> Device:
    """Return the device of a model: of an `.om` the kind it was tuned for."""
    from aoe.device.registry import default_device, device_of
    from aoe.om.file import read_manifest
    from aoe.om.loading import check_operators

    if not _is_om(model):
        return default_device().with_operators(operators)
    manifest = read_manifest(model)
    for caveat in check_operators(model, manifest, operators):
        say(f"warning: {caveat}")
    return device_of(manifest.soc_version).with_operators(operators)


def _is_om(file: Path) -> bool:
    return file.suffix == ".om"


def _part(file: Path) -> ModelPart:
    from aoe.execute.messages import ModelPart
    from aoe.om.loading import weights_are_large

    return ModelPart(model=file, optimize=True, is_large=weights_are_large(file.parent))
