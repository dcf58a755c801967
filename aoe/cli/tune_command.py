"""`aoe --model=...`: tune a model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from aoe.settings import environment
from aoe.tuning.mode import TuneSettings

if TYPE_CHECKING:
    from aoe.tuning.opat.result import OpatResult


def run_tuning(
    settings: TuneSettings, *, as_json: bool, shown: bool, env: Mapping[str, str] | None = None
) -> OpatResult:
    """Tune, show progress, print the outcome; `env` stands in for the process's environment."""
    from aoe.cli.progress import shown_progress
    from aoe.tuning.opat.result import OpatResult
    from aoe.tuning.run import tune_with

    with shown_progress(shown=shown and not as_json) as progress:
        tuned = tune_with(
            settings,
            env=environment() if env is None else env,
            cwd=Path.cwd(),
            progress=progress,
            now=datetime.now(UTC),
        )
    result = tuned.get(OpatResult)
    if as_json:
        typer.echo(json.dumps(_document(result)))
    else:
        _print_result(result)
    return result


def _document(result: OpatResult) -> dict[str, Any]:
    from aoe.tuning.opat.result import summary

    return {
        "schema": "aoe.tune/1",
        "om": str(result.om_file),
        "results": str(result.places.results),
        "result_file": str(result.result_file),
        "bank": str(result.bank),
        "summary": summary(result),
    }


def _print_result(result: OpatResult) -> None:
    from aoe.report.tuning import operator_table, print_table
    from aoe.results.files import improvement_percent

    if result.operators:
        print_table(operator_table(result))
    else:
        typer.echo("nothing in this model is tunable: ONNX Runtime is left to it as it is")
    estimate = result.judgement.estimate
    measurement = result.judgement.comparison.measurement
    typer.echo(
        f"whole model: {measurement.baseline_latency_us / 1e3:.3f} ms -> "
        f"{measurement.latency_us / 1e3:.3f} ms, {estimate.median:.3f}x "
        f"(95 % interval {estimate.low:.3f} to {estimate.high:.3f}, {estimate.pairs} pairs, "
        f"{result.target.core_num} threads, against ONNX Runtime with all optimisations)"
    )
    for name, reason in result.judgement.dropped.items():
        typer.echo(f"dropped {name}: {reason}")
    typer.echo(f"tuned model: {result.om_file}")
    typer.echo(f"bank: {result.bank / result.target.soc_version}")
    typer.echo(
        f"{result.tuning_name} process finished. "
        f"Performance improved by {improvement_percent(result.speedup):.2f}%"
    )
