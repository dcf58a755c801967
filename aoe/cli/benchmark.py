"""`aoe benchmark`: time a model, alone or against another one in pairs."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aoe.cli.options import JsonFlag, SeedOption
from aoe.errors import RunError

if TYPE_CHECKING:
    from aoe.execute.messages import ModelPart
    from aoe.execute.tasks import ModelComparison

_TIMEOUT_S = 1800.0


def benchmark(
    model: Annotated[Path, typer.Argument(help="An .om or .onnx file.")],
    versus: Annotated[
        Path | None,
        typer.Option(
            "--vs",
            help="Compare with this .om or .onnx; default for an .om is the "
            "untuned model inside it.",
        ),
    ] = None,
    pairs: Annotated[int, typer.Option("--pairs", min=6, help="Most pairs of runs.")] = 100,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="Threads; default is every usable core.")
    ] = None,
    input_shape: Annotated[
        str | None, typer.Option("--input_shape", help="For .onnx files with open shapes.")
    ] = None,
    seed: SeedOption = 0,
    as_json: JsonFlag = False,
) -> None:
    """Time a model against another one, interleaved, with a confidence interval."""
    from aoe.device.registry import default_device
    from aoe.device.toolchain import Toolchain
    from aoe.execute.runner import Runner
    from aoe.measurement import MeasurePolicy

    with tempfile.TemporaryDirectory(prefix="aoe_bench_") as scratch:
        tuned = model_part(model, Path(scratch) / "a", input_shape)
        if versus is None and model.suffix == ".om":
            from aoe.om.file import FALLBACK

            baseline, name = _part(Path(scratch) / "a" / FALLBACK), "untuned model inside"
        else:
            baseline = model_part(versus or model, Path(scratch) / "b", input_shape)
            name = str(versus or model)
        device = default_device()
        target = device.describe(threads)
        policy = MeasurePolicy(
            pairs_min=min(20, pairs),
            pairs_max=pairs,
            warmup=3,
            target_half_width=0.002,
            threads=target.core_num,
        )
        with Runner(device, target, Toolchain(command=())) as runner:
            comparison: ModelComparison = runner.call(
                "compare_models",
                timeout_s=_TIMEOUT_S,
                baseline=baseline,
                tuned=tuned,
                policy=policy,
                seed=seed,
            )
    document = _document(model, name, comparison, target.core_num)
    typer.echo(json.dumps(document) if as_json else _text(document))


def model_part(file: Path, directory: Path, input_shape: str | None) -> ModelPart:
    """Unpack an `.om`, or import an `.onnx`, so that it can be timed.

    Raises:
        AoeError: the file cannot be used on this machine.
    """
    if file.suffix == ".om":
        from aoe.om.file import unpack
        from aoe.om.loading import tuned_part, unfit_reason

        manifest = unpack(file, directory)
        reason = unfit_reason(manifest)
        if reason:
            raise RunError(str(file), f"its kernels do not fit this machine: {reason}")
        return tuned_part(directory, manifest)
    from aoe.entry.input_shapes import parse_input_shape
    from aoe.entry.onnx_file import load_onnx

    directory.mkdir(parents=True, exist_ok=True)
    proto = load_onnx(file, parse_input_shape(input_shape)).proto
    (directory / "model.onnx").write_bytes(proto.SerializeToString())
    return _part(directory / "model.onnx")


def _part(file: Path) -> ModelPart:
    from aoe.execute.messages import ModelPart

    return ModelPart(model=file, optimize=True)


def _document(
    model: Path, baseline: str, comparison: ModelComparison, threads: int
) -> dict[str, Any]:
    from aoe.measurement import estimate_speedup
    from aoe.results.files import finite_or_none

    estimate = estimate_speedup(comparison.measurement)
    return {
        "schema": "aoe.benchmark/1",
        "model": str(model),
        "baseline": baseline,
        "threads": threads,
        "model_ms": round(comparison.measurement.latency_us / 1e3, 4),
        "baseline_ms": round(comparison.measurement.baseline_latency_us / 1e3, 4),
        "speedup": round(estimate.median, 4),
        "speedup_low": round(estimate.low, 4),
        "speedup_high": round(estimate.high, 4),
        "pairs": estimate.pairs,
        "same_results": comparison.deviation.acceptable,
        "max_abs_err": finite_or_none(comparison.deviation.max_abs_err),
    }


def _text(document: dict[str, Any]) -> str:
    error = document["max_abs_err"]
    largest = f"largest difference {error:.3g}" if error is not None else "not even finite alike"
    same = f"{'same results' if document['same_results'] else 'results differ'} ({largest})"
    return (
        f"{document['model']}: {document['model_ms']:.3f} ms\n"
        f"{document['baseline']}: {document['baseline_ms']:.3f} ms\n"
        f"{document['speedup']:.3f}x as fast (95 % interval {document['speedup_low']:.3f} to "
        f"{document['speedup_high']:.3f}, {document['pairs']} pairs, "
        f"{document['threads']} threads); {same}"
    )
