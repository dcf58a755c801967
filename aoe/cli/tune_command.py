"""`aoe --model=...`: tune a model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from aoe.settings import JOB_TYPE_WORDS, TuneSettings, environment

if TYPE_CHECKING:
    from aoe.tuning.run import TuneResult


def run_tuning(
    settings: TuneSettings, *, as_json: bool, shown: bool, env: Mapping[str, str] | None = None
) -> TuneResult:
    """Tune, show progress, print the outcome; `env` stands in for the process's environment."""
    from aoe.cli.progress import shown_progress
    from aoe.tuning.run import tune

    with shown_progress(shown=shown and not as_json) as progress:
        for job in settings.job_types:
            progress.step(f"{JOB_TYPE_WORDS[job]} of {settings.model.name}")
        result = tune(
            settings,
            env=environment() if env is None else env,
            cwd=Path.cwd(),
            progress=progress,
            now=datetime.now(UTC),
        )
    if as_json:
        typer.echo(json.dumps(_document(result)))
    else:
        _print_result(result)
    return result


def _document(result: TuneResult) -> dict[str, Any]:
    summary = json.loads((result.results / "summary.json").read_text())
    return {
        "schema": "aoe.tune/1",
        "om": str(result.opat.om_file),
        "results": str(result.results),
        "result_file": str(result.result_file),
        "bank": str(result.bank_root),
        "summary": summary,
    }


def _print_result(result: TuneResult) -> None:
    from aoe.report.tuning import operator_table, print_table
    from aoe.results.files import improvement_percent

    opat = result.opat
    if opat.operators:
        print_table(operator_table(opat))
    else:
        typer.echo("nothing in this model is tunable: ONNX Runtime is left to it as it is")
    estimate = opat.judgement.estimate
    measurement = opat.judgement.comparison.measurement
    typer.echo(
        f"whole model: {measurement.baseline_latency_us / 1e3:.3f} ms -> "
        f"{measurement.latency_us / 1e3:.3f} ms, {estimate.median:.3f}x "
        f"(95 % interval {estimate.low:.3f} to {estimate.high:.3f}, {estimate.pairs} pairs, "
        f"{result.target.core_num} threads, against ONNX Runtime with all optimisations)"
    )
    for name, reason in opat.judgement.dropped.items():
        typer.echo(f"dropped {name}: {reason}")
    typer.echo(f"tuned model: {opat.om_file}")
    typer.echo(f"bank: {result.bank_root / result.target.soc_version}")
    speedup = estimate.median if opat.judgement.kept else 1.0
    typer.echo(
        f"{opat.report.tuning_name} process finished. "
        f"Performance improved by {improvement_percent(speedup):.2f}%"
    )
